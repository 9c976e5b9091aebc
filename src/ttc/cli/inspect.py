"""``ttc inspect``: what a model offers to adaptation, and whether it is set up correctly."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.cli.model_options import CheckpointOption, HeadOption, ModelArgument, StatisticsOption
from ttc.cli.wording import print_line

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import nn

TITLE = 22  # columns of the titles, those of ttc.core.Inspection too


def inspect(
    model: ModelArgument,
    checkpoint: CheckpointOption = None,
    statistics: StatisticsOption = None,
    head: HeadOption = None,
    batch_size: Annotated[int | None, typer.Option(help="The batch size you plan to use.", min=1)] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--data",
            "--dataset",
            metavar="DATASET",
            help="Clean images to measure the accuracy on: embedded, cifar10[:PATH], cifar100[:PATH], imagenet, "
            "imagefolder:PATH.",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="How many of the images to use.", min=1, show_default="at most 1,000")
    ] = None,
) -> None:
    """Show a model's normalization layers, head and adaptable parameters, and what prevents adaptation.

    With --data, also its clean accuracy beside the published one: wrong variants and input statistics load without
    error and show only there.
    """
    from ttc.core import inspect as inspect_model
    from ttc.models import MODELS, build
    from ttc.models.clean_accuracy import fitting_variants

    network = build(model, None, checkpoint, statistics, pretrained=dataset is not None)  # else no download
    found = inspect_model(network, head=head, batch_size=batch_size)
    for line in str(found).splitlines():
        print_line(line[:TITLE].rstrip(), line[TITLE:], TITLE)
    if model in MODELS:
        print_line("input", MODELS[model].expects(found.num_classes), TITLE)
    for other in fitting_variants(model, checkpoint):
        print_line("also fits", f"{other}: {MODELS[other].expects(found.num_classes)}", TITLE)
    if dataset is not None:
        for title, text in _accuracy(network, model, checkpoint, dataset, images):
            print_line(title, text, TITLE)


def _accuracy(
    network: "nn.Module", model: str, checkpoint: Path | None, dataset: str, count: int | None
) -> list[tuple[str, str]]:
    """Return the lines on the clean accuracy, each with its title."""
    from ttc.data import data_root, subset
    from ttc.data.named import is_sorted_by_class
    from ttc.models import MODELS, open_fitted
    from ttc.models.clean_accuracy import CAUSES, better_settings, measure_accuracy, published_accuracy

    whole, takes = open_fitted(network, dataset, data_root())
    if whole.num_classes != takes.num_classes:
        return [("warning", f"{whole.name} has {whole.num_classes} classes, the model {takes.num_classes}")]
    chosen = subset(whole, min(1000, len(whole)) if count is None else count, is_sorted_by_class(dataset))
    measured = measure_accuracy(network, chosen, published_accuracy(model, dataset, whole.num_classes))
    lines = [("data", f"{chosen.name}, SHA-256 {chosen.checksum[:16]}"), ("clean accuracy", str(measured))]
    if measured.is_too_low:
        lines.append(("warning", f"the clean accuracy is far too low; likely causes: {CAUSES}"))
        if checkpoint is None and model in MODELS:
            lines.append(("warning", "the weights are random: give a trained model with --checkpoint"))
        for setting, value in better_settings(model, checkpoint, chosen, measured.accuracy)[:3]:
            lines.append(("better", f"{value:.1%} of some of these images with {setting}"))
    return lines
