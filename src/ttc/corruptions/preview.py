"""A contact sheet: one image with every corruption and severity."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ttc.corruptions.apply import corrupt
from ttc.corruptions.severity_tables import CORRUPTIONS, GROUPS, SEVERITIES, TableName

_CELL, _GAP, _LABEL, _HEAD = 160, 6, 216, 240
_PAPER, _INK, _FAINT = (250, 250, 248), (28, 30, 34), (120, 124, 130)


def contact_sheet(
    image: NDArray[np.uint8],
    corruptions: Sequence[str] = CORRUPTIONS,
    *,
    table: TableName | None = None,
    seed: int = 0,
    frost_dir: Path | None = None,
    done: Callable[[int], None] = lambda cells: None,
) -> Image.Image:
    """Draw one row per corruption and one column per severity below the clean ``image``, uint8 (H, W, 3)."""
    step = _CELL + _GAP
    sheet = Image.new("RGB", (_LABEL + 5 * step + 18, _HEAD + len(corruptions) * step + 12), _PAPER)
    pen = ImageDraw.Draw(sheet)
    title, label, small = (ImageFont.load_default(size) for size in (26, 19, 15))
    sheet.paste(_thumbnail(image), (_LABEL, 24))
    left = _LABEL + step + 12
    pen.text((left, 24), "Common corruptions", _INK, title)
    pen.text(
        (left, 64), f"{image.shape[1]}x{image.shape[0]} pixels, {table or 'nearest'} table, seed {seed}", _FAINT, small
    )
    pen.text((left, 86), "left: the clean image", _FAINT, small)
    for severity in SEVERITIES:
        middle = _LABEL + (severity - 1) * step + _CELL // 2
        pen.text((middle, _HEAD - 24), f"severity {severity}", _INK, small, anchor="mm")
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    for row, corruption in enumerate(corruptions):
        top = _HEAD + row * step
        pen.text((18, top + _CELL // 2 - 12), corruption.replace("_", " "), _INK, label, anchor="lm")
        pen.text((18, top + _CELL // 2 + 12), group_of[corruption], _FAINT, small, anchor="lm")
        for severity in SEVERITIES:
            changed = corrupt(image[None], corruption, severity, table=table, seed=seed, frost_dir=frost_dir)[0]
            sheet.paste(_thumbnail(changed), (_LABEL + (severity - 1) * step, top))
            done(1)
    return sheet


def _thumbnail(image: NDArray[np.uint8]) -> Image.Image:
    """Fit an image into a cell: small ones enlarged pixel by pixel, large ones smoothly shrunk."""
    whole = Image.fromarray(image)
    factor = _CELL / max(whole.size)
    size = (max(1, round(whole.width * factor)), max(1, round(whole.height * factor)))
    cell = Image.new("RGB", (_CELL, _CELL), _PAPER)
    resampling = Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS
    cell.paste(whole.resize(size, resampling), ((_CELL - size[0]) // 2, (_CELL - size[1]) // 2))
    return cell
