import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.bench.conftest import protocol
from ttc.bench import Protocol, difference
from ttc.errors import TTCError


def test_the_hash_is_that_of_the_canonical_json_and_stays() -> None:
    cell = Protocol(
        "cifar",
        "ab",
        "resnet20",
        "cd",
        "tent",
        "{}",
        ("fog",),
        5,
        9,
        0,
        3,
        "per-domain",
        "none",
        "float32",
        "cpu",
        1,
        "1",
    )
    absent = {"method_checksum", "source_split", "source_checksum", "textures"}
    values = {name: value for name, value in dataclasses.asdict(cell).items() if name not in absent}
    assert cell.json() == json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert (
        cell.hash == "8e417a757f942c04f972395af866ebb8899d765550b0f540a1cf9f3c22402833"
    )  # a change of this number makes every old store start anew


def test_every_field_takes_part_in_the_hash() -> None:
    cell = protocol()
    other: dict[str, Any] = {"corruptions": ("snow", "fog"), "options": '{"optimizer": "x"}'}
    hashes = {cell.hash}
    for field in dataclasses.fields(cell):
        value = getattr(cell, field.name)
        changed: Any = other.get(field.name, value + 1 if isinstance(value, int) else f"{value}?")
        varied = dataclasses.replace(cell, **{field.name: changed})
        assert len(difference(cell, varied)) == 1
        hashes.add(varied.hash)
    assert len(hashes) == 1 + len(dataclasses.fields(cell))


def test_a_protocol_reads_what_it_writes() -> None:
    cell = protocol("ttc(bandwidth=2)", corruptions=("fog", "snow"))
    assert Protocol.read(cell.json()) == cell
    assert Protocol.read(cell.json()).hash == cell.hash


def test_the_hash_is_the_same_in_another_process() -> None:
    cell = protocol()
    code = f"from ttc.bench.protocol import Protocol; print(Protocol.read({cell.json()!r}).hash)"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == cell.hash


def test_the_difference_names_fields_and_single_options() -> None:
    one, other = protocol("ttc(bandwidth=2)", seed=1), protocol("ttc", batch_size=9)
    assert difference(one, other) == {"options.bandwidth": (2, 1.0), "seed": (1, 0), "batch_size": (24, 9)}
    assert difference(one, one) == {}
    assert difference(protocol("norm"), protocol("t3a"))["options.filter_size"][0] == "(not an option)"


def test_a_protocol_from_before_user_methods_has_the_same_hash() -> None:
    cell = protocol()
    assert "method_checksum" not in cell.json()
    own = dataclasses.replace(cell, method="mine:builder", method_checksum="ab")
    assert Protocol.read(own.json()) == own
    assert own.hash != dataclasses.replace(own, method_checksum="cd").hash


def test_the_label_says_which_cell() -> None:
    assert protocol().label == "tent, fog 5, per-domain, batch 24, seed 0"
    assert protocol().describe("ttc(ss=False)") == "ttc(ss=False), fog 5, per-domain, batch 24, seed 0"
    assert protocol(corruptions=("fog", "snow")).domain == "2 corruptions 5"
    assert protocol(corruptions=("frost",), textures="original frost").domain == "frost 5 (original frost)"


def test_cells_with_other_frost_are_other_cells_and_those_without_frost_are_not() -> None:
    assert "textures" not in protocol().json()
    original = protocol(corruptions=("frost",), textures="original frost")
    assert original.hash != protocol(corruptions=("frost",), textures="procedural frost").hash
    assert Protocol.read(original.json()) == original


@pytest.mark.parametrize(("field", "value"), [("images", 0), ("batch_size", 0), ("seed", -1), ("threads", 0)])
def test_numbers_out_of_range_are_rejected(field: str, value: int) -> None:
    changes: Any = {field: value}
    with pytest.raises(TTCError, match=f"{field.replace('_', ' ')} must be at least"):
        dataclasses.replace(protocol(), **changes)
