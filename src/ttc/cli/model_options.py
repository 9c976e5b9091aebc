"""Which model: the argument and the options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="embedded, a zoo name, timm:NAME, torchvision:NAME or package.module:function, which runs its code."
    ),
]
CheckpointOption = Annotated[Path | None, typer.Option(help="Weights to load: .pt, .pth, .th or .safetensors.")]
ClassesOption = Annotated[int | None, typer.Option("--classes", help="Number of classes of the model.")]
HeadOption = Annotated[str | None, typer.Option(help="Name of the final layer, where it cannot be detected.")]
StatisticsOption = Annotated[
    str | None,
    typer.Option(
        help="Mean and deviation that standardize the input of a zoo model: none, half, cifar10, cifar100 or imagenet.",
        show_default="those of its published weights",
    ),
]
