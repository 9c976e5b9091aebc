"""Bad input: one clear sentence, nothing changed."""

import copy
import pickle
import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Adapter, Classifier


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda x: x[0], r"expected images of shape \(N, 3, H, W\), got shape \(3, 8, 8\): "),
        (lambda x: x[:, :2], r"expected images of shape \(N, 3, H, W\), got shape \(24, 2, 8, 8\): "),
        (lambda x: x[:0], r"at least one image \(N, C, H, W\), got shape \(0, 3, 8, 8\)"),
        (lambda x: x.flatten()[0], r"at least one image \(N, C, H, W\), got shape \(\)"),
        (lambda x: (x * 255).to(torch.uint8), r"expected float images, got torch.uint8; .* images.float\(\) / 255"),
        (lambda x: x.long(), "expected float images, got torch.int64"),
        (lambda x: x.double(), "the images are torch.float64 and the model torch.float32"),
        (lambda x: x.to("meta"), "the images are on meta and the model on cpu"),
        (lambda x: x * float("nan"), "the images contain NaN or infinite values"),
        (lambda x: x / 0, "the images contain NaN or infinite values"),
        (lambda x: x.numpy(), r"expected a tensor of images \(N, C, H, W\), got ndarray"),
        (lambda x: torch.full_like(x, 3e38), "the model's outputs for this batch are not finite"),
    ],
)
def test_bad_images_are_rejected_with_the_reason(
    bad: Any, message: str, model: nn.Module, stream: list[Tensor]
) -> None:
    adapter, untroubled = ttc.adapt(model, "ttc"), ttc.adapt(model, "ttc")
    with pytest.raises(ttc.TTCError, match=message):
        adapter(bad(stream[0]))
    for batch in stream:
        assert torch.equal(adapter(batch), untroubled(batch))


def test_a_new_image_size_is_taken_when_the_model_can(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc")
    adapter(stream[0])
    assert adapter(torch.rand(4, 3, 12, 10)).shape == (4, 4)


def test_pending_gradients_survive_a_new_image_size(model: nn.Module, stream: list[Tensor]) -> None:
    one, other = (ttc.adapt(model, "ttc", accumulate=2) for _ in range(2))
    one(stream[0])
    other(stream[0])
    with pytest.raises(ttc.TTCError):
        one(torch.rand(4, 5, 8, 8))
    one(stream[1])
    other(stream[1])
    assert torch.equal(one(stream[2]), other(stream[2]))


@pytest.mark.parametrize("device", ["cuda", "nonsense"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to move to")
def test_a_device_that_is_not_there_changes_nothing(device: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, unmoved = ttc.adapt(model, "ttc"), ttc.adapt(model, "ttc")
    for move in (adapter.to, ttc.Guard(adapter).to):
        with pytest.raises(ttc.TTCError, match=rf"cannot be moved to '{device}': .*; it stays on cpu"):
            move(device)
    assert torch.equal(adapter(stream[0]), unmoved(stream[0]))


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state_dict"])
def test_a_copy_during_calls_is_of_one_moment(model: nn.Module, stream: list[Tensor], way: str) -> None:
    class Twice(Adapter):
        """Two attributes that are equal between calls and differ in the middle of one."""

        state_attributes = ("model", "first", "second")
        first = second = 0

        def adapt(self, x: Tensor) -> Tensor:
            self.first += 1
            time.sleep(0.002)
            self.second += 1
            return self.model(x).logits

    adapter = Twice(Classifier(model))
    globals()["Twice"] = Twice  # where pickle looks for it
    Twice.__qualname__ = "Twice"
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            adapter(stream[0])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            if way == "state_dict":
                state = adapter.state_dict()
                assert state["first"] == state["second"]
            else:
                made = copy.deepcopy(adapter) if way == "deepcopy" else pickle.loads(pickle.dumps(adapter))
                assert made.first == made.second
                assert type(made) is Twice
    finally:
        stop.set()
        thread.join()
