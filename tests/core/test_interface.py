"""Models as other libraries make them: standardized inputs, other calls, other outputs."""

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Classifier, ModelInterface
from ttc.core.interface import PixelNormalization
from ttc.fast import FastForward

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


class Standardizing(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = copy.deepcopy(model)

    def forward(self, x: Tensor) -> Tensor:
        mean, std = (torch.tensor(part).view(1, 3, 1, 1) for part in (MEAN, STD))
        logits: Tensor = self.inner((x - mean) / std)
        return logits


class Wrapping(nn.Module):
    """Returns its logits in the form of other libraries."""

    def __init__(self, model: nn.Module, wrap: Any) -> None:
        super().__init__()
        self.inner, self.wrap = copy.deepcopy(model), wrap

    def forward(self, x: Tensor) -> object:
        return self.wrap(self.inner(x))


class PixelValues(nn.Module):
    """Takes images by keyword alone and returns an object, as models of Hugging Face do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = copy.deepcopy(model)

    def forward(self, *, pixel_values: Tensor) -> SimpleNamespace:
        return SimpleNamespace(loss=None, logits=self.inner(pixel_values))


def by_keyword(model: nn.Module, images: Tensor) -> object:
    return model(pixel_values=images)


def second(output: Any) -> Tensor:
    logits: Tensor = output[1]
    return logits


@pytest.mark.parametrize("method", ["ttc", "tent", "tipi", "t3a", "source"])
def test_normalize_equals_a_first_layer_that_standardizes(method: str, model: nn.Module, stream: list[Tensor]) -> None:
    options: dict[str, Any] = {"random_start": True} if method == "tipi" else {}
    inside = ttc.adapt(model, method, normalize=(MEAN, STD), **options)
    layer = ttc.adapt(Standardizing(model), method, head="inner.fc", **options)
    for batch in stream:
        torch.testing.assert_close(inside(batch), layer(batch), rtol=1e-3, atol=1e-4)


def test_a_normalized_adapter_guards_copies_saves_and_resumes(
    model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    adapter = ttc.adapt(model, "ttc", normalize=(MEAN, STD))
    guard = ttc.Guard(adapter)
    torch.testing.assert_close(guard.source(stream[0]).logits, ttc.adapt(Standardizing(model), "source")(stream[0]))
    adapter(stream[0])
    adapter.save(tmp_path / "adaptation.safetensors")
    copied, loaded = (
        pickle.loads(pickle.dumps(adapter)),
        ttc.load_adaptation(model, tmp_path / "adaptation.safetensors"),
    )
    expected = adapter(stream[1])
    assert torch.equal(copied(stream[1]), expected)
    assert torch.equal(loaded(stream[1]), expected)


def test_normalization_does_not_cost_the_acceleration(model: nn.Module) -> None:
    runner = ttc.adapt(model, "ttc", normalize=(MEAN, STD)).model.runner
    assert isinstance(runner, FastForward)
    assert runner.program is not None


@pytest.mark.parametrize(
    ("normalize", "message"),
    [
        ("imagenet", r"normalize must be \(mean, std\).*; got 'imagenet'"),
        (((0.5, 0.5), (1.0, 1.0, 1.0)), "got 2 means and 3 standard deviations"),
        (((123.7, 116.3, 103.5), (58.4, 57.1, 57.4)), "values for 0..255 are divided by 255"),
        (((0.5,) * 3, (0.5, 0, 0.5)), "got mean 0.5, 0.5, 0.5 and std 0.5, 0, 0.5"),
        (0.5, "normalize must be"),
    ],
)
def test_an_invalid_normalization_is_rejected(normalize: Any, message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "ttc", normalize=normalize)


def test_normalize_and_standardized_contradict_each_other(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="give one of them"):
        ttc.adapt(model, "tipi", normalize=(MEAN, STD), standardized=(MEAN, STD))


def test_another_number_of_channels_is_rejected_not_broadcast(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "ttc", normalize=(MEAN, STD))
    with pytest.raises(ttc.TTCError, match=r"normalize has 3 channels .*got shape \(2, 1, 8, 8\)"):
        adapter(torch.rand(4, 1, 8, 8))
    assert PixelNormalization((0.5, 0.25))(torch.ones(1, 3, 2, 2)).unique().item() == 2


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda logits: (logits, "features"), None),
        (lambda logits: [logits], None),
        (lambda logits: {"loss": None, "logits": logits}, None),
        (lambda logits: SimpleNamespace(logits=logits), None),
        (lambda logits: ("features", logits), second),
        (lambda logits: {"scores": logits}, lambda output: output["scores"]),
    ],
)
def test_logits_are_found_in_every_common_output(
    wrap: Any, output: Any, model: nn.Module, stream: list[Tensor]
) -> None:
    adapter = ttc.adapt(Wrapping(model, wrap), "ttc", output=output)
    plain = ttc.adapt(model, "ttc")
    for batch in stream:
        torch.testing.assert_close(adapter(batch), plain(batch), rtol=1e-4, atol=1e-4)


def test_a_model_is_called_by_keyword(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(PixelValues(model), "ttc", forward=by_keyword)
    plain = ttc.adapt(model, "ttc", accelerate=False)
    for batch in stream:
        assert torch.equal(adapter(batch), plain(batch))
    assert torch.equal(pickle.loads(pickle.dumps(adapter)).predict(stream[0]), adapter.predict(stream[0]))
    with pytest.raises(ttc.TTCError, match="compile and autocast apply to model"):
        ttc.adapt(PixelValues(model), "ttc", forward=by_keyword, autocast=True)


def test_functions_are_passed_again_when_loading(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    adapter = ttc.adapt(PixelValues(model), "ttc", forward=by_keyword)
    adapter(stream[0])
    adapter.save(tmp_path / "adaptation.safetensors")
    with pytest.raises(ttc.TTCError, match="by_keyword, which a file cannot contain; pass it again as forward="):
        ttc.load_adaptation(PixelValues(model), tmp_path / "adaptation.safetensors")
    loaded = ttc.load_adaptation(PixelValues(model), tmp_path / "adaptation.safetensors", forward=by_keyword)
    assert torch.equal(loaded(stream[1]), adapter(stream[1]))


def test_what_cannot_be_pickled_says_so_and_still_copies(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(PixelValues(model), "ttc", forward=lambda model, images: model(pixel_values=images))
    with pytest.raises(ttc.TTCError, match=r"forward=.*<lambda> cannot be pickled.* define it with def"):
        pickle.dumps(adapter)
    assert torch.equal(copy.deepcopy(adapter)(stream[0]), adapter(stream[0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forward": "pixel_values"}, "forward must be a function, got 'pixel_values'"),
        ({"output": "logits"}, "output must be a function or 'probabilities', got 'logits'"),
        ({"output": 3}, "output must be a function or 'probabilities', got int"),
        ({"forward": nn.ReLU()}, "forward must be a function, got ReLU"),
    ],
)
def test_an_invalid_interface_is_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ModelInterface(**options)


def test_an_output_that_is_no_tensor_is_rejected(model: nn.Module, stream: list[Tensor]) -> None:
    with pytest.raises(ttc.TTCError, match=r"expected output= to return a tensor of logits .N, K., got list"):
        ttc.adapt(model, "ttc", output=lambda output: [output])(stream[0])  # type: ignore[arg-type, return-value]


def test_probabilities_are_rejected_or_converted(model: nn.Module, stream: list[Tensor]) -> None:
    hidden = Wrapping(model, lambda logits: logits.softmax(1))  # nothing in its layers says so
    with pytest.raises(ttc.TTCError, match=r"returns probabilities, .* output='probabilities'"):
        ttc.adapt(hidden, "ttc")(stream[0])
    converted, plain = ttc.adapt(hidden, "tent", output="probabilities"), ttc.adapt(model, "tent")
    for batch in stream:
        torch.testing.assert_close(converted(batch).softmax(1), plain(batch).softmax(1), rtol=1e-3, atol=1e-4)


def test_a_softmax_layer_is_rejected_at_once(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="returns probabilities"):
        ttc.adapt(nn.Sequential(model, nn.Softmax(1)), "ttc")


def test_a_single_output_is_rejected() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
    )
    with pytest.raises(ttc.TTCError, match=r"the head has one output.*two rows"):
        ttc.adapt(network, "ttc")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_rejected(model: nn.Module) -> None:
    scripted = torch.jit.trace(copy.deepcopy(model).eval(), torch.rand(2, 3, 8, 8))
    for take in (ttc.adapt, ttc.inspect, Classifier):
        with pytest.raises(ttc.TTCError, match=r"TorchScript model cannot be adapted.*pass the Python model"):
            take(scripted)
