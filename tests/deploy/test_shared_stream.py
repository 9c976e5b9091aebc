"""One stream over many processes: P processes with shards of a batch equal one with the whole batch."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import GaussianNoise
from ttc.deploy import Guard, Policy
from ttc.deploy.shared_stream import distributed, launched_by_torchrun

WORKER = Path(__file__).parent / "stream_process.py"
FORMS: dict[str, dict[str, Any]] = {"": {}, " average": {"small_batches": True}, " window": {"small_batches": "window"}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name}{form}": (name, options) for name in ("norm", "tent", "eta", "ttc") for form, options in FORMS.items()},
    "norm+flip": ("norm+flip", {}),
    "tent+flip": ("tent+flip", {}),
    "norm-ema": ("norm-ema", {}),
    "norm-blend": ("norm-blend", {}),
    "come": ("come", {}),
    "shot-im": ("shot-im", {}),
    "tent blend": ("tent", {"small_batches": "blend"}),
    "neighbours in a memory": ("ttc", {"neighbour": "memory", "memory_size": 30, "accumulate": 1}),
    "views together": ("ttc", {"views_together": True, "accumulate": 1}),
    "a random view": ("ttc", {"view": GaussianNoise(), "accumulate": 1, "constrain": "all"}),
}
ENDINGS = {2: "late", 4: "killed"}  # how the last of so many processes is lost when all has been compared
DEEP = torch.rand(2, 13, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def source(trained: nn.Module) -> nn.Module:
    """The trained model, of torch's own layers, which another process can load."""
    body, head = trained.get_submodule("body"), trained.get_submodule("fc")
    assert isinstance(body, nn.Sequential)
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


@pytest.fixture(scope="module")
def batches(labelled: Any) -> list[Tensor]:
    images, _ = labelled(5 * 48, 1.2, 2)
    return list((images * torch.tensor([0.5, 0.8, 1.0]).view(1, 3, 1, 1) + 0.1).split(48))


class Outcome(NamedTuple):
    """What each process returned, and what those that were left said when the last was lost."""

    parts: list[Any]
    left: list[Any]


def start(folder: Path, size: int, model: nn.Module, stream: list[Tensor]) -> list[subprocess.Popen[str]]:
    given = {"model": model, "stream": stream, "cases": CASES, "deep": DEEP}
    torch.save(given, folder / "given.pt")
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), str(rank), str(size), ENDINGS[size]],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def wait(processes: list[subprocess.Popen[str]], expected: list[int]) -> None:
    try:
        for process, code in zip(processes, expected, strict=True):
            _, errors = process.communicate(timeout=300)
            assert process.returncode == code, errors
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module", params=ENDINGS)
def outcome(
    request: pytest.FixtureRequest, source: nn.Module, batches: list[Tensor], tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    """Run as many processes as the parameter says."""
    size, folder = request.param, tmp_path_factory.mktemp("shared")
    last = -signal.SIGKILL if ENDINGS[size] == "killed" else 0
    wait(start(folder, size, source, batches), [*[0] * (size - 1), last])
    parts = [torch.load(folder / f"compared-{rank}.pt", weights_only=False) for rank in range(size)]
    return Outcome(parts, [torch.load(folder / f"lost-{rank}.pt", weights_only=False) for rank in range(size - 1)])


@pytest.fixture
def compared(outcome: Outcome) -> list[Any]:
    return outcome.parts


@pytest.fixture(scope="module")
def alone(source: nn.Module, batches: list[Tensor]) -> dict[str, dict[str, Any]]:
    """What one process computes, with the whole batches."""
    found = {}
    for name, (method, options) in CASES.items():
        adapter = ttc.adapt(source, method, **options)
        logits = [adapter(batch) for batch in batches]
        found[name] = {"logits": logits, "predicted": adapter.predict(batches[1]), "state": adapter.model.state_dict()}
    return found


@pytest.mark.parametrize("name", CASES)
def test_many_processes_equal_one(name: str, compared: list[Any], alone: dict[str, dict[str, Any]]) -> None:
    parts = [part["results"][name] for part in compared]
    for index, expected in enumerate(alone[name]["logits"]):
        joined = torch.cat([part["logits"][index] for part in parts])
        torch.testing.assert_close(joined, expected, rtol=0, atol=1e-5)
    predicted = torch.cat([part["predicted"] for part in parts])
    torch.testing.assert_close(predicted, alone[name]["predicted"], rtol=0, atol=1e-5)
    assert len({part["digest"] for part in parts}) == 1, "the adapters of the processes are not equal bit for bit"
    first = torch.cat([part["again"] for part in parts])
    torch.testing.assert_close(first, alone[name]["logits"][0], rtol=0, atol=1e-5)


def test_a_deep_network_agrees_where_rounding_does_not_matter(compared: list[Any]) -> None:
    adapter = ttc.adapt(deep_network(), "ttc", accumulate=1)
    for index, batch in enumerate(DEEP):
        joined = torch.cat([part["deep"][index] for part in compared])
        torch.testing.assert_close(joined, adapter(batch), rtol=0, atol=1e-9)


def deep_network() -> nn.Module:
    torch.manual_seed(0)
    return ttc.models.build("resnet20").double()


def test_the_cases_learn_something(alone: dict[str, dict[str, Any]], source: nn.Module, batches: list[Tensor]) -> None:
    for name in CASES:
        if not name.startswith("norm"):
            initial = ttc.adapt(source, *CASES[name][:1], **CASES[name][1]).model.state_dict()
            moved = max((alone[name]["state"][key] - value).abs().max() for key, value in initial.items())
            assert moved > 1e-4, name


def test_a_guard_of_whole_batches_decides_alike(compared: list[Any], source: nn.Module, batches: list[Tensor]) -> None:
    guard = Guard(ttc.adapt(source, "ttc", accumulate=1), Policy(check_every=32))
    for index, batch in enumerate(batches):
        expected = guard(batch)
        for part in compared:
            torch.testing.assert_close(part["guarded"][index], expected, rtol=0, atol=1e-5)


def test_what_one_process_rejects_all_reject(compared: list[Any]) -> None:
    first, second = compared[0]["rejections"], compared[1]["rejections"]
    assert first["not finite"] == (
        "process 1 rejected its images, so the batch is left out by all: the images contain NaN or infinite values; "
        "leave those images out"
    )
    assert second["not finite"] == "the images contain NaN or infinite values; leave those images out"
    for part in (first, second):
        assert part["another shape"] == (
            "the processes of a stream take images of one shape, got (3, 8, 6) and (3, 8, 8)"
        )
        assert part["no images"] == "expected a batch of at least one image in one of the processes, got none"
        assert part["whole"].startswith("every process takes the whole batch, and they got 2 and 3")
        assert part["state"] == "unchanged"


def test_adapters_that_differ_are_rejected(compared: list[Any]) -> None:
    for part in compared:
        for name in ("other weights", "another method"):
            others = ", ".join(str(rank) for rank in range(1, len(compared)))
            assert part["rejections"][name] == (
                f"the adapters of processes 0 and {others} differ: build them with the same model, weights and options"
            )


def test_methods_that_cannot_share_a_stream_say_so(compared: list[Any]) -> None:
    messages = compared[1]["rejections"]
    assert messages["cotta"] == (
        "CoTTA cannot share a stream between processes: run it in one, or choose norm, tent, eta or ttc"
    )
    assert "(BatchRenorm) cannot share a stream between processes" in messages["delta"]
    assert messages["selected"] == (
        "propagate='selected' cannot share a stream between processes: run it in one, or leave that out"
    )
    assert messages["compiled"] == (
        "a compiled network cannot share a stream between processes; adapt without compile=True"
    )
    assert messages["twice"] == "the adapter shares its stream already; call distributed once"
    assert messages["guard of shards"].startswith("a guard of a shared stream must see whole batches")
    assert messages["batches"] == "batches is 'shards' or 'whole', got 'half'"
    assert "cannot be pickled; save it with adapter.save(path)" in messages["pickle"]


def test_a_process_that_is_lost_ends_the_others(outcome: Outcome) -> None:
    for part in outcome.left:
        assert len(part["messages"]) == 2
        assert "another process of the stream has stopped, or did not arrive within" in part["messages"][0]
        assert part["seconds"] < 60
        assert part["unchanged"], "half a batch was learned"


def test_without_processes_it_says_how_to_start_them(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert not launched_by_torchrun()
    with pytest.raises(ttc.TTCError, match="there is no process group: start the program with torchrun"):
        distributed(ttc.adapt(model, "tent"))
