"""One stream: modes, status, and a thread that fails."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc import Guard, TTCError
from ttc.deploy import Limits, Policy
from ttc.serve.request_images import RequestError
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.served_stream import ServedStream
from ttc.serve.stream_folder import StreamFolder


def opened(predictor: Guard | ttc.Adapter, path: Path, **options: int) -> ServedStream:
    return ServedStream("a", predictor, StreamFolder(path), ServeSettings("mine", **options))  # type: ignore[arg-type]


def test_the_mode_is_the_one_that_predicted(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    # Unhealthy at once: a rollback, later the source. Nothing is compared, so that adaptation begins.
    policy = Policy(Limits(parameter_drift=1e-9), check_every=24, source_fraction=0)
    guard = Guard(ttc.adapt(model, "tent"), policy)
    served = opened(guard, tmp_path)
    modes = []
    for images in (*stream, *stream):
        probabilities, mode = asyncio.run(served.predict(images))
        assert probabilities.sum(1).allclose(torch.ones(len(images), dtype=torch.float64))
        modes.append(mode)
    assert modes[0] == "adapting"
    assert modes[-1] in {"frozen", "source"}
    status = served.status()
    assert status["mode"] == guard.mode
    assert status["events"][-1]["action"] in {"freeze", "source", "rollback"}
    assert {point["mode"] for point in status["history"]} == set(modes)
    assert json.loads(json.dumps(status, allow_nan=False)) == status
    served.close()


def test_probabilities_are_those_of_the_adapter(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    served = opened(ttc.adapt(model, "tent"), tmp_path)
    expected = ttc.adapt(model, "tent")(stream[0]).double().softmax(1)
    found, mode = asyncio.run(served.predict(stream[0]))
    assert torch.equal(found, expected)
    assert mode == "unguarded"
    served.close()


def test_rejected_images_are_the_caller_s_error(model: nn.Module, tmp_path: Path) -> None:
    served = opened(ttc.adapt(model, "tent"), tmp_path)
    with pytest.raises(TTCError, match="NaN"):
        asyncio.run(served.predict(torch.full((2, 3, 8, 8), torch.nan)))
    assert not served.has_failed
    assert served.waiting == 0
    served.close()
    assert not (tmp_path / "stream.json").exists()  # nothing was learned


def test_a_request_larger_than_the_queue_is_taken_when_it_is_empty(
    model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    async def scenario(served: ServedStream) -> None:
        first = asyncio.create_task(served.predict(stream[0]))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="24 images of this stream are waiting") as caught:
            await served.predict(stream[1])
        assert (caught.value.status, caught.value.retry_after) == (429, 1)
        assert len((await first)[0]) == 24

    served = opened(ttc.adapt(model, "tent"), tmp_path, max_queued=8)
    asyncio.run(scenario(served))
    served.close()
