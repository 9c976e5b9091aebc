"""``ttc train``: train a source model on CIFAR, with a checkpoint per epoch and a model card."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import ttc
from ttc.cli.data import DataOption

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor, nn

    from ttc.data import Images
    from ttc.models.training import Recipe

BATCH = 100  # the batch size of the evaluation, over which NORM computes its statistics
SEVERITY = 5


def train(
    model: Annotated[
        str, typer.Option(help="An architecture for 32 x 32 images, such as resnet20 or wrn-16-4.")
    ] = "resnet20",
    dataset: Annotated[Literal["cifar10", "cifar100"], typer.Option(help="The training data.")] = "cifar10",
    data: DataOption = None,
    out: Annotated[
        Path | None, typer.Option(help="The output folder.", show_default="trained/MODEL-DATASET-SEED")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 32,
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 128,
    lr: Annotated[float, typer.Option(help="The peak learning rate of the one-cycle schedule.")] = 0.2,
    seed: Annotated[int, typer.Option(help="The seed of initialization, order and augmentation.")] = 0,
    device: Annotated[str, typer.Option(help="The device: cpu, cuda, cuda:1, …")] = "cpu",
    corruptions: Annotated[
        bool, typer.Option(help="Evaluate SOURCE and NORM on corrupted images for the model card.")
    ] = True,
    card_images: Annotated[int, typer.Option(help="The number of test images to corrupt for the model card.")] = 2000,
) -> None:
    """Train a source model on CIFAR; run the same command again after an interruption to resume."""
    from rich.console import Console

    from ttc.data import cifar, data_root, subset
    from ttc.errors import unknown
    from ttc.models import MODELS
    from ttc.models.training import Recipe

    if model not in MODELS:
        raise unknown("architecture", model, MODELS)
    recipe = Recipe(epochs=epochs, batch_size=batch_size, peak_lr=lr, seed=seed)
    root = data_root(data)
    images, test = cifar(root, dataset, train=True), cifar(root, dataset)
    corrupted = subset(test, card_images) if corruptions else None
    folder = out or Path("trained") / f"{model}-{dataset}-{seed}"
    console = Console(markup=False, soft_wrap=True)
    network = _build_untrained(model, images.num_classes, seed, device)
    try:
        _train(network, images, recipe, folder / "training.pt", console)
        _write_results(network, model, test, corrupted, recipe, folder, device, console)
    except KeyboardInterrupt:
        checkpoint = folder / "training.pt"
        saved = f"finished epochs are saved in {checkpoint}" if checkpoint.exists() else "no epoch was finished"
        console.print(f"interrupted; {saved}")
        console.print("to resume: run the same command again")
        raise typer.Exit(130) from None


def _build_untrained(name: str, num_classes: int, seed: int, device: str) -> "nn.Module":
    import torch

    from ttc.errors import TTCError
    from ttc.models import build

    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise TTCError(f"the device {device!r} is not available ({reason}): try --device cpu") from error
    torch.manual_seed(seed)
    return build(name, num_classes).to(chosen)


def _train(network: "nn.Module", images: "Images", recipe: "Recipe", checkpoint: Path, console: "Console") -> None:
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ttc.data.location import unwritable
    from ttc.models import training

    pixels = torch.from_numpy(images.pixels(range(len(images)))).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(images.labels)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, {task.fields[rate]}, time left"),
        TimeRemainingColumn(),
    )
    if checkpoint.exists():
        console.print(f"resuming from {checkpoint}")
    try:
        with Progress(TextColumn("{task.description}"), *columns, console=console, transient=True) as progress:
            task = progress.add_task("training", total=None, rate="")
            for at in training.train(network, pixels, labels, recipe, checkpoint):
                seen, total = at.epoch * at.steps_per_epoch + at.step, recipe.epochs * at.steps_per_epoch
                text = f"epoch {at.epoch + 1}/{recipe.epochs}, loss {at.loss:.3f}, accuracy {at.accuracy:.1%}"
                rate = f"{recipe.batch_size * (progress.tasks[0].speed or 0):.0f} images/s"
                progress.update(task, description=text, completed=seen, total=total, rate=rate)
                if at.step == at.steps_per_epoch:
                    console.print(text)
    except OSError as error:
        raise unwritable(checkpoint.parent, error) from error
    console.print("computing the BatchNorm statistics over all training images")
    training.update_bn_statistics(network, pixels)


def _write_results(
    network: "nn.Module",
    name: str,
    test: "Images",
    corrupted: "Images | None",
    recipe: "Recipe",
    folder: Path,
    device: str,
    console: "Console",
) -> None:
    """Write the weights and the model card, and print their paths."""
    from dataclasses import asdict

    import torch

    from ttc.models.card import ModelCard, accuracy, save_weights, write_card

    network.eval()
    console.print("evaluating on the clean test images")
    clean = accuracy(network, _batches(test, device))
    rows = _corruption_accuracies(network, corrupted, device, console) if corrupted is not None else {}
    weights = folder / f"{name}.safetensors"
    metadata = {
        "model": name,
        "num_classes": str(test.num_classes),
        "dataset": test.name,
        "clean_accuracy": f"{clean:.4f}",
    }
    card = ModelCard(
        model=name,
        dataset=test.name.removesuffix(" test"),
        num_classes=test.num_classes,
        statistics=_statistics(network),
        parameters=sum(p.numel() for p in network.parameters()),
        recipe=asdict(recipe),
        clean_accuracy=clean,
        clean_images=len(test),
        corruptions=rows,
        severity=SEVERITY,
        corrupted_images=len(corrupted) if corrupted is not None else 0,
        batch_size=BATCH,
        weights=weights.name,
        sha256=save_weights(network, weights, metadata),
        data_checksum=test.checksum,
        versions={"ttc": ttc.__version__, "torch": torch.__version__},
    )
    written = write_card(card, folder)
    console.print(f"clean accuracy {clean:.2%}; weights: {weights}; model card: {written[1]}")
    console.print(f"to use it: --model {name} --checkpoint {weights}")


def _corruption_accuracies(
    network: "nn.Module", images: "Images", device: str, console: "Console"
) -> dict[str, dict[str, float]]:
    from rich.progress import track

    from ttc.corruptions import CORRUPTIONS
    from ttc.data import corrupt_images
    from ttc.methods import adapt
    from ttc.models.card import accuracy

    predictors: dict[str, Callable[[Tensor], Tensor]] = {"source": network, "norm": adapt(network, "norm")}
    rows = {}
    for corruption in track(CORRUPTIONS, "evaluating SOURCE and NORM", console=console, transient=True):
        batches = list(_batches(corrupt_images(images, corruption, SEVERITY), device))
        rows[corruption] = {method: accuracy(predict, batches) for method, predict in predictors.items()}
        console.print(f"{corruption}: SOURCE {rows[corruption]['source']:.1%}, NORM {rows[corruption]['norm']:.1%}")
    return rows


def _batches(images: "Images", device: str) -> "Iterator[tuple[Tensor, Tensor]]":
    import torch

    from ttc.data import as_tensor

    for start in range(0, len(images), BATCH):
        index = range(start, min(start + BATCH, len(images)))
        yield as_tensor(images.pixels(index)).to(device), torch.from_numpy(images.labels[start : index.stop])


def _statistics(network: "nn.Module") -> str:
    """Return the name of the input statistics of a network."""
    from ttc.models import INPUT_STATISTICS

    mean = getattr(getattr(network, "standardize", None), "mean", None)
    if mean is None:
        return "none"
    own = [round(value, 4) for value in mean.flatten().tolist()]
    return next(
        (name for name, both in INPUT_STATISTICS.items() if both and [round(v, 4) for v in both[0]] == own), "own"
    )
