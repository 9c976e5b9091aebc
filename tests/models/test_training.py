import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.models.training import Recipe, train, update_bn_statistics

RECIPE = Recipe(epochs=3, batch_size=4, peak_lr=0.1, crop_padding=2, seed=5)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (11, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return images, torch.randint(3, (11,), generator=generator)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def trained(model: nn.Module, recipe: Recipe = RECIPE, checkpoint: Path | None = None) -> nn.Module:
    for _ in train(model, *data(), recipe, checkpoint):
        pass
    update_bn_statistics(model, data()[0])
    return model


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (key, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=key)


def transcription(model: nn.Sequential) -> nn.Module:
    """The recipe in plain steps: one image, one parameter and one rule at a time."""
    images, labels = data()
    steps = len(images) // 4
    velocity = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    model.train()
    for epoch in range(3):
        generator = torch.Generator().manual_seed(5 * 1_000_003 + epoch)
        order = torch.randperm(11, generator=generator).tolist()
        for step in range(steps):
            index = order[4 * step : 4 * step + 4]
            offsets = torch.randint(5, (2, 4), generator=generator)
            batch = []
            for place, i in enumerate(index):
                padded = F.pad(images[i : i + 1].float(), (2, 2, 2, 2), mode="reflect")[0]
                row, column = offsets[:, place].tolist()
                crop = padded[:, row : row + 8, column : column + 8]
                batch.append(crop.flip(2) if ((i * 2654435761 >> 7) + epoch) % 2 else crop)
            loss = F.cross_entropy(model(torch.stack(batch) / 255), labels[index])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            done = (epoch * steps + step) / (3 * steps)
            if done < 0.25:
                rate = 0.1 * (0.05 + 0.95 * done / 0.25)
            else:
                rate = 0.1 * (1 + math.cos(math.pi * (done - 0.25) / 0.75)) / 2
            with torch.no_grad():
                for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
                    if parameter.ndim > 1:
                        gradient = gradient + 5e-4 * parameter
                    velocity[name] = 0.9 * velocity[name] + gradient
                    parameter.sub_(rate * (gradient + 0.9 * velocity[name]))
    inputs = model[0](images.float() / 255)  # the one BatchNorm sees all images at once: they fit in a batch
    mean, variance, count = norm_of(model).buffers()
    mean.copy_(inputs.mean((0, 2, 3)))
    variance.copy_(inputs.var((0, 2, 3)))
    count.fill_(1)
    return model


def norm_of(model: nn.Sequential) -> nn.BatchNorm2d:
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    return norm


def test_updated_statistics_are_the_mean_over_batches() -> None:
    model, (images, _) = network(), data()
    update_bn_statistics(model, images[:10], batch_size=5)
    with torch.no_grad():
        inputs = [model[0](part.float() / 255) for part in images[:10].split(5)]
    mean, variance, _ = norm_of(model).buffers()
    torch.testing.assert_close(mean, sum(x.mean((0, 2, 3)) for x in inputs) / 2)
    torch.testing.assert_close(variance, sum(x.var((0, 2, 3)) for x in inputs) / 2)
    assert norm_of(model).momentum == 0.1


def test_the_recipe_equals_its_transcription() -> None:
    assert_same(trained(network()), transcription(network()))


def test_progress_is_reported_after_every_step() -> None:
    reported = list(train(network(), *data(), RECIPE))
    assert [(at.epoch, at.step, at.steps_per_epoch) for at in reported] == [(e, s, 2) for e in range(3) for s in (1, 2)]
    assert all(0 <= at.accuracy <= 1 and at.loss > 0 for at in reported)


@pytest.mark.parametrize("steps", [3, 4, 5])
def test_a_resumed_training_ends_with_the_same_weights(tmp_path: Path, steps: int) -> None:
    checkpoint = tmp_path / "t.pt"
    for _ in zip(range(steps), train(network(), *data(), RECIPE, checkpoint), strict=False):
        pass  # then the generator is dropped, in the middle of an epoch or before its end was saved
    resumed = network()
    nn.init.ones_(resumed.get_submodule("5").get_parameter("weight"))  # what it starts with must not matter
    assert_same(trained(resumed, checkpoint=checkpoint), trained(network()))
    assert list(tmp_path.iterdir()) == [checkpoint]


def test_a_finished_training_is_only_loaded(tmp_path: Path) -> None:
    done = trained(network(), checkpoint=tmp_path / "t.pt")
    again = network()
    assert list(train(again, *data(), RECIPE, tmp_path / "t.pt")) == []
    update_bn_statistics(again, data()[0])
    assert_same(again, done)


def test_checkpoints_of_something_else_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.pt"
    trained(network(), checkpoint=path)
    other = Recipe(epochs=4, batch_size=4, peak_lr=0.1, crop_padding=2, seed=6)
    with pytest.raises(TTCError, match=r"written with another recipe \(epochs 3, not 4, seed 5, not 6\)"):
        trained(network(), other, path)
    with pytest.raises(TTCError, match=r"t.pt does not fit the model: 1 missing \(0.bias\)"):
        trained(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *list(network())[1:]), RECIPE, path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TTCError, match=r"the checkpoint .*t.pt cannot be read"):
        trained(network(), RECIPE, path)
    torch.save({"state_dict": {}}, path)
    with pytest.raises(TTCError, match=r"t.pt is not a training checkpoint"):
        trained(network(), RECIPE, path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 1}, "batch size must be at least 2, got 1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"crop_padding": -1}, "crop padding must be at least 0, got -1"),
        ({"peak_lr": 0.0}, "the peak learning rate must be positive, got 0.0"),
        ({"peak_lr": math.nan}, "the peak learning rate must be positive, got nan"),
    ],
)
def test_wrong_recipes(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(TTCError, match=message):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_a_diverging_training_stops() -> None:
    with pytest.raises(TTCError, match=r"the loss is (nan|inf) in epoch \d: lower the learning rate"):
        trained(network(), Recipe(epochs=3, batch_size=4, peak_lr=1e30, crop_padding=2))


def test_too_few_images() -> None:
    with pytest.raises(TTCError, match="a batch needs 128 images, got 11: lower the batch size"):
        trained(network(), Recipe())
