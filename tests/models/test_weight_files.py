import os
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.models import build, load_checkpoint
from ttc.models.weight_files import matching_architectures, read_state_dict


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    torch.manual_seed(7)
    return dict(build("resnet20").state_dict())


def same(model: nn.Module, weights: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".th", ".tar", ".safetensors"])
def test_every_format(tmp_path: Path, weights: dict[str, Tensor], suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path, _use_new_zipfile_serialization=suffix != ".tar")  # .tar: the form before 2020
    model = build("resnet20")
    assert not same(model, weights)
    assert load_checkpoint(model, path) is model
    assert same(model, weights)
    assert same(build("resnet20", checkpoint=path), weights)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda w: {"state_dict": w, "epoch": 3, "optimizer": {"state": {}}},
        lambda w: {"model": {f"module.{k}": v for k, v in w.items()}},
        lambda w: {"net": {f"module.model.{k}": v for k, v in w.items()}, "acc": np.float64(0.9)},
        lambda w: OrderedDict((f"model.{k}", v) for k, v in w.items()),
        lambda w: {
            "model_state_dict": {f"_orig_mod.{k}": v for k, v in w.items()},
            "best": np.float32(1),
            "n": np.int64(2),
        },
    ],
)
def test_wrappers_and_prefixes(tmp_path: Path, weights: dict[str, Tensor], wrapped: object) -> None:
    assert callable(wrapped)
    torch.save(wrapped(weights), tmp_path / "w.pt")
    assert same(build("resnet20", checkpoint=tmp_path / "w.pt"), weights)


def test_a_prefix_of_some_keys_stays(tmp_path: Path) -> None:
    torch.save({"model.a": torch.zeros(1), "b": torch.zeros(1)}, tmp_path / "w.pt")
    assert set(read_state_dict(tmp_path / "w.pt")) == {"model.a", "b"}


def test_a_wrapped_model_takes_bare_and_prefixed_weights(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    wrapped = nn.ModuleDict({"model": layer})
    for prefix in ("", "model.", "module.model."):
        state = {f"{prefix}weight": torch.full((2, 2), 3.0), f"{prefix}bias": torch.ones(2)}
        torch.save(state, tmp_path / "w.pt")
        nn.init.zeros_(layer.weight)
        load_checkpoint(wrapped, tmp_path / "w.pt")
        assert layer.weight.tolist() == [[3, 3], [3, 3]]


def test_batch_counters_may_be_absent(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    old = {key: value for key, value in weights.items() if "num_batches" not in key}
    torch.save(old, tmp_path / "w.pt")
    assert same(build("resnet20", checkpoint=tmp_path / "w.pt"), weights)


def test_classes_follow_the_checkpoint(tmp_path: Path) -> None:
    torch.save(build("resnet20", num_classes=37).state_dict(), tmp_path / "w.pt")
    with torch.no_grad():
        assert build("resnet20", checkpoint=tmp_path / "w.pt")(torch.rand(1, 3, 32, 32)).shape == (1, 37)
    with pytest.raises(TTCError, match=r"2 of another shape \(linear.weight 37x64 for 10x64, linear.bias 37 for 10\)"):
        build("resnet20", num_classes=10, checkpoint=tmp_path / "w.pt")


def test_another_architecture_is_named(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(TTCError) as caught:
        build("wrn-16-1", checkpoint=tmp_path / "w.pt")
    message = str(caught.value)
    assert "w.pt does not fit the model" in message
    assert "missing (block1.layer.0.bn1.weight, " in message
    assert "unexpected (" in message
    assert message.count("layer") <= 8  # shortened
    assert message.endswith("it fits resnet20")


def test_architectures_of_another_depth_do_not_match(weights: dict[str, Tensor]) -> None:
    assert matching_architectures(weights) == ["resnet20"]
    with torch.device("meta"):
        assert matching_architectures(dict(build("wrn-40-2", num_classes=100).state_dict())) == ["wrn-40-2"]


def test_no_architecture_fits(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(2, 2), "fc.bias": torch.zeros(2)}, tmp_path / "w.pt")
    with pytest.raises(TTCError, match="it fits no built-in architecture: check the model and the file"):
        load_checkpoint(nn.Linear(2, 2), tmp_path / "w.pt")


def test_pickled_code_is_rejected_and_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    for zipped in (True, False):
        torch.save(
            {"state_dict": {"a": torch.zeros(1)}, "trap": Trap()},
            tmp_path / "w.pt",
            _use_new_zipfile_serialization=zipped,
        )
        with pytest.raises(
            TTCError, match=r"w.pt contains pickled code \((posix|nt).mkdir\), .* rejected .*state_dict"
        ):
            read_state_dict(tmp_path / "w.pt")
        assert not (tmp_path / "sprung").exists()


def test_a_whole_pickled_model_is_rejected(tmp_path: Path) -> None:
    torch.save(build("resnet20"), tmp_path / "w.pt")
    with pytest.raises(TTCError, match=r"contains pickled code \(ttc.models.cifar_resnet.CifarResNet\)"):
        read_state_dict(tmp_path / "w.pt")


def test_bad_files(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    with pytest.raises(TTCError, match=r"there is no checkpoint .*nowhere.pt"):
        read_state_dict(tmp_path / "nowhere.pt")
    (tmp_path / "empty.pt").touch()
    with pytest.raises(TTCError, match=r"empty.pt is empty"):
        read_state_dict(tmp_path / "empty.pt")
    (tmp_path / "page.pt").write_text("\n<!DOCTYPE html><html>Quota exceeded</html>")
    with pytest.raises(TTCError, match=r"page.pt is a web page, not a checkpoint"):
        read_state_dict(tmp_path / "page.pt")
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    with pytest.raises(TTCError, match=r"none.pt contains no weights: expected a state dict"):
        read_state_dict(tmp_path / "none.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with pytest.raises(TTCError, match=r"list.pt contains no weights"):
        read_state_dict(tmp_path / "list.pt")


@pytest.mark.parametrize("name", ["zip.pt", "old.pt", "w.safetensors", "random.pt"])
def test_truncated_files(tmp_path: Path, weights: dict[str, Tensor], name: str) -> None:
    path = tmp_path / name
    if name == "w.safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path, _use_new_zipfile_serialization=name == "zip.pt")
    path.write_bytes(bytes(range(256)) * 20 if name == "random.pt" else path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(
        TTCError, match=r"the checkpoint .* (is damaged|cannot be read) \(.+\): download or copy it again"
    ):
        read_state_dict(path)


def test_damaged_bytes_never_surprise(tmp_path: Path) -> None:
    """Any damage is either harmless or one sentence, in all three formats."""
    random = np.random.default_rng(0)
    small = {"fc.weight": torch.zeros(3, 4), "fc.bias": torch.zeros(3)}
    outcomes = set[type]()
    for name in ("new.pt", "old.pt", "w.safetensors"):
        path = tmp_path / name
        if path.suffix == ".safetensors":
            save_file(small, path)
        else:
            torch.save(small, path, _use_new_zipfile_serialization=name == "new.pt")
        whole = path.read_bytes()
        for _ in range(40):
            damaged = bytearray(whole)
            for place in random.integers(len(whole), size=3):
                damaged[place] = random.integers(256)
            path.write_bytes(damaged)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch remarks on odd bytes
                try:
                    outcomes.add(type(read_state_dict(path)))
                except TTCError as error:
                    outcomes.add(type(error))
    assert outcomes == {dict, TTCError}
