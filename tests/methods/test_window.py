"""The sliding window: what is predicted among what, and that each image is learned from once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Adapter, Classifier
from ttc.deploy import Guard, Limits, Policy
from ttc.methods.small_batches import WINDOW
from ttc.methods.window import WindowAdapter
from ttc.nn import BatchStatisticsNorm, WindowNorm, frozen_copy

Images = Callable[[int, float, int], tuple[Tensor, Tensor]]


class Recorder(Adapter):
    """Answers each image with its first value, and notes what it was shown to learn from and to prediction."""

    def __init__(self, model: Classifier) -> None:
        super().__init__(model)
        self.learned: list[list[float]] = []
        self.predicted: list[list[float]] = []

    def adapt(self, x: Tensor) -> Tensor:
        self.learned.append(x[:, 0, 0, 0].tolist())
        return x[:, 0, 0, :1]

    def infer(self, x: Tensor) -> Tensor:
        self.predicted.append(x[:, 0, 0, 0].tolist())
        return x[:, 0, 0, :1]


def numbered(first: int, last: int, side: int = 8) -> Tensor:
    return torch.arange(first, last, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 3, side, side) / 1000


def numbers(values: list[float]) -> list[int]:
    return [round(1000 * value) for value in values]


@pytest.fixture
def recorder(model: nn.Module) -> Recorder:
    return Recorder(frozen_copy(Classifier(model), partial(WindowNorm, places=5)))


def test_each_batch_is_predicted_among_the_last_images(recorder: Recorder) -> None:
    window = WindowAdapter(recorder, 5)
    for first in (0, 2, 4, 6):
        prediction = window(numbered(first, first + 2))
        assert numbers(prediction[:, 0].tolist()) == [first, first + 1]
    assert [numbers(shown) for shown in recorder.predicted] == [[0, 1], [0, 1, 2, 3], [3, 4, 5, 6, 7]]
    assert [numbers(shown) for shown in recorder.learned] == [[0, 1, 2, 3, 4, 5]]


def test_every_image_is_learned_from_once_in_order(recorder: Recorder) -> None:
    window, first = WindowAdapter(recorder, 7), 0
    for size in (1, 3, 2, 6, 1, 1, 20, 7, 4, 5, 8, 1, 6):
        window(numbered(first, first + size))
        window.predict(numbered(900, 903))
        first += size
    learned = [number for shown in recorder.learned for number in numbers(shown)]
    assert learned == list(range(first - window.fresh))
    assert all(7 <= len(shown) < 7 + 20 for shown in recorder.learned)
    assert window.images is not None
    assert numbers(window.images[:, 0, 0, 0].tolist()) == list(range(first - 7, first))


def test_images_of_another_shape_begin_a_new_window(recorder: Recorder) -> None:
    window = WindowAdapter(recorder, 4)
    window(numbered(0, 3))
    window(numbered(10, 12, side=6))
    window(numbered(20, 22, side=6))
    assert [numbers(shown) for shown in recorder.predicted] == [[0, 1, 2], [10, 11]]
    assert [numbers(shown) for shown in recorder.learned] == [[10, 11, 20, 21]]


def test_the_window_is_a_copy_of_bounded_size(recorder: Recorder) -> None:
    window = WindowAdapter(recorder, 4)
    images = numbered(0, 500).clone()
    window(images)
    assert window.images is not None
    assert window.images.untyped_storage().nbytes() == 4 * 3 * 8 * 8 * 4
    images.zero_()
    assert numbers(window.images[:, 0, 0, 0].tolist()) == [496, 497, 498, 499]


def test_the_source_stands_in_for_missing_images() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(2)
    layer.running_mean, layer.running_var = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 0.3])
    filled = WindowNorm(BatchStatisticsNorm(layer), places=8)
    x = torch.randn(3, 2, 4, 4) * 2 + 1
    values = x.double().transpose(0, 1).flatten(1)  # (C, 48), and 80 of the source with its mean and variance
    source_mean, source_variance = layer.running_mean.double(), layer.running_var.double()
    mean = (values.sum(1) + 80 * source_mean) / 128
    square = (values.square().sum(1) + 80 * (source_variance + source_mean**2)) / 128
    shape = (1, 2, 1, 1)
    expected = (x.double() - mean.view(shape)) / (square - mean**2 + layer.eps).sqrt().view(shape)
    torch.testing.assert_close(filled(x).double(), expected, rtol=1e-5, atol=1e-5)
    full = torch.randn(8, 2, 4, 4)
    assert torch.equal(filled(full), BatchStatisticsNorm(layer)(full))


@pytest.mark.parametrize("name", ["tent", "ttc", "eta", "norm-ema", "t3a"])
def test_single_images_teach_as_batches_of_the_window_do(name: str, model: nn.Module, labelled: Images) -> None:
    images, _ = labelled(4 * WINDOW, 1.0, 3)
    singly, plain = ttc.adapt(model, name, small_batches="window"), ttc.adapt(model, name)
    assert isinstance(singly, WindowAdapter)
    for image in images:
        singly(image[None])
    for batch in images.split(WINDOW):
        plain(batch)
    state, expected = singly.base.state_dict(), plain.state_dict()
    assert state["model"].keys() == expected["model"].keys()
    for key, value in expected["model"].items():
        assert torch.equal(state["model"][key], value), key
    if name == "t3a":
        assert torch.equal(state["memory"]["supports"][0], expected["memory"]["supports"][0])


def test_large_batches_pass_untouched(model: nn.Module, labelled: Images) -> None:
    images, _ = labelled(5 * WINDOW, 1.0, 3)
    window, plain = ttc.adapt(model, "ttc", small_batches="window"), ttc.adapt(model, "ttc")
    for batch in images.split([WINDOW, WINDOW + 9, 3 * WINDOW - 9]):
        assert torch.equal(window(batch), plain(batch))


def test_predictions_that_stand_alone_cost_no_window(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "source", small_batches="window")
    assert isinstance(adapter, WindowAdapter)
    sizes: list[int] = []
    adapter.model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    for _ in range(4):
        adapter(torch.rand(2, 3, 8, 8))
    assert max(sizes) == 2


def test_a_saved_file_holds_the_window_and_reset_empties_it(model: nn.Module, tmp_path: Path) -> None:
    adapter = ttc.adapt(model, "ttc", small_batches="window")
    assert isinstance(adapter, WindowAdapter)
    images = torch.rand(5, 3, 8, 8)
    adapter(images)
    adapter.save(tmp_path / "window.safetensors")
    loaded = ttc.load_adaptation(model, tmp_path / "window.safetensors")
    assert isinstance(loaded, WindowAdapter)
    assert loaded.images is not None
    assert torch.equal(loaded.images, images)
    assert loaded.fresh == 5
    adapter.reset()
    adapter.save(tmp_path / "empty.safetensors")
    assert images.numpy()[0].tobytes() in (tmp_path / "window.safetensors").read_bytes()
    assert (tmp_path / "empty.safetensors").stat().st_size < images.nbytes
    with pytest.raises(ttc.TTCError, match="small_batches"):
        ttc.adapt(model, "ttc", small_batches=True).load(tmp_path / "window.safetensors")


def test_a_guard_compares_networks_within_the_window(model: nn.Module, labelled: Images) -> None:
    images, _ = labelled(150, 0.5, 7)
    policy = Policy(Limits(consistency_gap=0.9), source_fraction=1.0)  # a flip changes the stripes
    guard = Guard(ttc.adapt(model, "tent", small_batches="window"), policy)
    for image in images:
        guard(image[None])
    assert guard.mode == "adapting", [*guard.events]
    assert guard.stats["disagreement"] < 0.2  # images shown alone would be predicted almost at random


def test_a_model_without_source_statistics_is_rejected() -> None:
    bare = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten(), nn.Linear(16, 2)
    )
    with pytest.raises(ttc.TTCError, match="a BatchNorm of the model stores no source statistics"):
        ttc.adapt(bare, "ttc", small_batches="window")


def test_single_images_are_predicted_almost_as_large_batches(model: nn.Module, labelled: Images) -> None:
    images, labels = labelled(400, 1.0, 11)
    images = images * torch.tensor([0.3, 0.5, 0.9]).view(1, 3, 1, 1) + 0.25

    def accuracy(adapter: Adapter, size: int) -> float:
        found = torch.cat([adapter(batch) for batch in images.split(size)]).argmax(1)
        return (found == labels).float().mean().item()

    source, large = accuracy(ttc.adapt(model, "source"), 100), accuracy(ttc.adapt(model, "ttc"), 100)
    small = accuracy(ttc.adapt(model, "ttc", small_batches="window"), 1)
    assert large > source + 0.1
    assert small > large - 0.06


def test_an_outlier_leaves_the_window_and_is_not_learned_from(recorder: Recorder) -> None:
    window, ordinary = WindowAdapter(recorder, 30), torch.rand(60, 3, 8, 8) / 10
    for batch in (ordinary[:8], torch.full((9, 3, 8, 8), 0.9), ordinary[8:20]):
        window(batch)
    assert [len(shown) for shown in recorder.predicted] == [8, 9, 20]  # far from the first, the second stands alone
    assert window.fresh == 20
    window(ordinary[20:34])
    assert max(recorder.learned[0]) < 0.5
    assert len(recorder.learned[0]) == 34
    window(torch.full((40, 3, 8, 8), 0.9))  # fills the window alone
    window(ordinary[34:43])
    assert window.images is not None
    assert torch.equal(window.images, ordinary[34:43])


def test_a_first_batch_that_the_next_two_contradict_leaves_the_window(recorder: Recorder) -> None:
    window, ordinary = WindowAdapter(recorder, 30), torch.rand(60, 3, 8, 8) / 10
    for batch in (torch.full((25, 3, 8, 8), 0.9), ordinary[:10], ordinary[10:20]):
        window(batch)
    assert [len(shown) for shown in recorder.predicted] == [25, 10, 20]
    assert window.images is not None
    assert torch.equal(window.images, ordinary[:20])
    assert window.fresh == 20
    window(ordinary[20:34])
    assert [len(learned) for learned in recorder.learned] == [34]
    assert max(recorder.learned[0]) < 0.5
