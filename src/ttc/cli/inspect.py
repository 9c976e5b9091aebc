"""``ttc inspect``: what a model offers to adaptation."""

from pathlib import Path
from typing import Annotated

import typer

from ttc.cli.wording import StatisticsOption


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="embedded, a zoo name, timm:NAME, torchvision:NAME or package.module:function, which runs its code."
        ),
    ],
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load: .pt, .pth, .th or .safetensors.")] = None,
    statistics: StatisticsOption = None,
    head: Annotated[str | None, typer.Option(help="The final layer's name, where it cannot be found.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="The batch size you plan to use.", min=1)] = None,
) -> None:
    """Show a model's normalization layers, head and adaptable parameters, and what prevents adaptation."""
    from ttc.core import inspect as inspect_model
    from ttc.models import build

    network = build(model, None, checkpoint, statistics, pretrained=False)  # the structure needs no download
    typer.echo(str(inspect_model(network, head=head, batch_size=batch_size)))
