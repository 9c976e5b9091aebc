"""``ttc inspect``: what adaptation will find in a model."""

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    model: Annotated[
        str, typer.Argument(help="embedded, a zoo name, timm:NAME, torchvision:NAME or package.module:function.")
    ],
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load: .pt, .pth, .th or .safetensors.")] = None,
    head: Annotated[str | None, typer.Option(help="The final layer's name, where it cannot be told.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="The batch size you plan to use.", min=1)] = None,
) -> None:
    """Show a model's normalization layers, head and adaptable parameters, and what stands in the way."""
    from ttc.core import inspect as inspected
    from ttc.models import build

    typer.echo(str(inspected(build(model, checkpoint=checkpoint), head=head, batch_size=batch_size)))
