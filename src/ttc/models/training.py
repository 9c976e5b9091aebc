"""Train source models on CIFAR: Nesterov SGD, one-cycle schedule, crops and flips, no corruption-like augmentation."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.files import atomic
from ttc.models.weight_files import load_state_dict, read_file


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the trained weights, besides the data and the architecture."""

    epochs: int = 32
    batch_size: int = 128
    peak_lr: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4  # convolutions and the head; never normalization or biases
    warmup: float = 0.25  # fraction of all steps in which the learning rate rises
    crop_padding: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 2), ("crop_padding", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise TTCError(f"{name.replace('_', ' ')} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.peak_lr < math.inf:
            raise TTCError(f"the peak learning rate must be positive, got {self.peak_lr}")


class TrainingProgress(NamedTuple):
    """The progress after a step; loss and accuracy are means over the epoch so far."""

    epoch: int
    step: int
    steps_per_epoch: int
    loss: float
    accuracy: float


def train(
    model: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe, checkpoint: Path | None = None
) -> Iterator[TrainingProgress]:
    """Train ``model`` in place, yielding after every step.

    The order and the augmentation of an epoch depend only on the seed and the epoch, so a resumed training ends with
    the weights of an uninterrupted one. Call :func:`update_bn_statistics` afterwards.

    Args:
        model: The network to change.
        images: uint8 (N, 3, H, W), on the CPU.
        labels: int64 (N,).
        recipe: The hyperparameters.
        checkpoint: A file that is written after every epoch; if it exists, training resumes from it.

    Yields:
        The progress after each step.

    Raises:
        TTCError: There are fewer images than a batch takes, the loss is not finite, or the checkpoint does not fit.
    """
    if len(images) < recipe.batch_size:
        raise TTCError(f"a batch needs {recipe.batch_size} images, got {len(images)}: lower the batch size")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    device = next(model.parameters()).device
    optimizer = _optimizer(model, recipe)
    first = _restore(checkpoint, model, optimizer, recipe) if checkpoint and checkpoint.exists() else 0
    padding = recipe.crop_padding
    padded = F.pad(images, (padding,) * 4, mode="reflect")
    steps = len(images) // recipe.batch_size
    for epoch in range(first, recipe.epochs):
        model.train()
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
        order = torch.randperm(len(images), generator=generator)
        total_loss, total_correct = 0.0, 0
        for step in range(steps):
            index = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
            x = _augmented(padded, index, images.shape[-1], epoch, generator).to(device)
            y = labels[index].to(device)
            for group in optimizer.param_groups:
                group["lr"] = _one_cycle((epoch * steps + step) / (recipe.epochs * steps), recipe)
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            if not loss.isfinite():
                raise TTCError(f"the loss is {loss.item()} in epoch {epoch + 1}: lower the learning rate")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
            total_correct += int((logits.argmax(1) == y).sum())
            seen = (step + 1) * recipe.batch_size
            yield TrainingProgress(epoch, step + 1, steps, total_loss / (step + 1), total_correct / seen)
        if checkpoint:
            _save(checkpoint, model, optimizer, recipe, epoch + 1)


@torch.no_grad()
def update_bn_statistics(model: nn.Module, images: Tensor, batch_size: int = 500) -> None:
    """Replace the running statistics of BatchNorm by their means over all ``images``, uint8 (N, 3, H, W), in place.

    After training they are a moving average over about the last twenty batches, of augmented images only.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # momentum None: the cumulative mean over batches
    model.train()
    device = next(model.parameters()).device
    for batch in images.split(batch_size):
        model(batch.to(device).float().div_(255).contiguous(memory_format=torch.channels_last))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=recipe.peak_lr, momentum=recipe.momentum, nesterov=True)


def _one_cycle(done: float, recipe: Recipe) -> float:
    """Return the learning rate after the fraction ``done`` of all steps: a linear warm-up, then a cosine to zero."""
    if done < recipe.warmup:
        return recipe.peak_lr * (0.05 + 0.95 * done / recipe.warmup)
    return recipe.peak_lr * 0.5 * (1 + math.cos(math.pi * (done - recipe.warmup) / (1 - recipe.warmup)))


def _augmented(padded: Tensor, index: Tensor, side: int, epoch: int, generator: torch.Generator) -> Tensor:
    """Return random crops, flipped in every other epoch: float (B, 3, side, side), channels-last.

    The index of an image determines whether the first epoch flips it; two epochs show both forms of every image.
    """
    span = padded.shape[-1] - side + 1
    offsets = torch.randint(span, (2, len(index)), generator=generator)
    rows = offsets[0, :, None] + torch.arange(side)  # (B, side)
    columns = offsets[1, :, None] + torch.arange(side)
    flipped = ((index * 2654435761 >> 7) + epoch) % 2 == 1
    columns = torch.where(flipped[:, None], columns.flip(1), columns)
    crops = padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (B, side, side, 3)
    return crops.permute(0, 3, 1, 2).float().div_(255)  # the memory stays channels-last


def _save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, epoch: int) -> None:
    state = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    with atomic(path) as part:
        torch.save({**state, "recipe": asdict(recipe)}, part)


def _restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe) -> int:
    state = read_file(path)
    if not isinstance(state, dict) or not {"state_dict", "optimizer", "epoch", "recipe"} <= state.keys():
        raise TTCError(f"{path} is not a training checkpoint: move it or choose another output folder")
    if state["recipe"] != asdict(recipe):
        before, now = state["recipe"], asdict(recipe)
        changed = ", ".join(f"{key} {before.get(key)}, not {now[key]}" for key in now if before.get(key) != now[key])
        raise TTCError(
            f"{path} was written with another recipe ({changed}): use the same one or choose another output folder"
        )
    load_state_dict(model, state["state_dict"], str(path))
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])
