"""Tables of cells and of summaries that fit the width of the terminal."""

import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ttc.bench.comparison import Summary
from ttc.bench.metrics import MeanStd
from ttc.bench.protocol import Protocol
from ttc.cli.wording import decimal, plural

GAP = 2  # blanks between columns
FOLD = {"method", "domain", "scenario"}  # columns that wrap where nothing else helps


def make_console() -> Console:
    """Return a console as wide as the terminal; 200 columns where there is none, so that files have whole rows."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(soft_wrap=True, highlight=False, width=None if known else 200)


def print_cells(
    console: Console,
    cells: Sequence[tuple[Protocol, str]],
    figures: Mapping[str, Sequence[str]],
    optional: Sequence[str] = (),
) -> None:
    """Print one row per cell; axes that are the same in every cell are named once above the table.

    Args:
        console: Where to print.
        cells: Each cell with the label of its method.
        figures: Further columns by title, one value per cell.
        optional: Titles of columns to leave out, first to last, where the terminal is too narrow.
    """
    axes = {
        "scenario": [cell.scenario for cell, _ in cells],
        "batch": [str(cell.batch_size) for cell, _ in cells],
        "seed": [str(cell.seed) for cell, _ in cells],
        "images": [str(cell.images) for cell, _ in cells],
    }
    same = {name: values[0] for name, values in axes.items() if len(values) > 1 and len(set(values)) == 1}
    if same:
        words = [value if name == "scenario" else f"{name} {value}" for name, value in same.items()]
        console.print(f"in every cell: {', '.join(words)}\n", markup=False)
    columns = {
        "cell": [cell.hash[:8] for cell, _ in cells],
        "method": [label for _, label in cells],
        "domain": [cell.domain for cell, _ in cells],
        **{name: values for name, values in axes.items() if name not in same},
        **figures,
    }
    print_columns(console, columns, optional)


def print_columns(console: Console, columns: Mapping[str, Sequence[str]], optional: Sequence[str] = ()) -> None:
    """Print a table, without the optional columns that do not fit."""
    shown = dict(columns)
    hidden = []
    for name in optional:
        if _width(shown) > console.width and name in shown:
            del shown[name]
            hidden.append(name)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in shown:
        text = name in FOLD or name == "cell"
        table.add_column(name, justify="left" if text else "right", no_wrap=name not in FOLD, overflow="fold")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    console.print(table, soft_wrap=False, markup=False)
    if hidden:
        console.print(f"not shown at this width: {', '.join(hidden)}", style="dim", markup=False)


def print_summaries(console: Console, found: Sequence[Summary]) -> None:
    """Print one table per setting: the mean over corruptions, mean ± deviation over seeds, and the cost."""
    groups: dict[str, list[Summary]] = defaultdict(list)
    for one in found:
        groups[_heading(one)].append(one)
    for heading, group in groups.items():
        console.print(heading, style="bold", markup=False, soft_wrap=False)
        columns = {
            "method": [one.method for one in group],
            "accuracy %": [_percent(one.accuracy) for one in group],
            "NLL": [_mean_std(one.nll, 1, 3) for one in group],
            "ECE %": [_percent(one.ece) for one in group],
            "passes": [f"{one.forwards:.3g}/{one.backwards:.3g}" for one in group],
            "ms/batch": [decimal(one.ms_per_batch, 1) for one in group],
        }
        print_columns(console, columns, ("NLL", "ECE %", "ms/batch"))
        console.print()


def _heading(one: Summary) -> str:
    setting = one.setting
    level = f"severity {setting['severity']}" if setting["severity"] else "clean"
    images = plural(int(str(setting["images"])), "image")
    frost = f", {setting['textures']}" if setting.get("textures") else ""
    return (
        f"{setting['dataset']}, {setting['model']}: {setting['scenario']}, {level}{frost}, "
        f"batch {setting['batch_size']}, {images}; "
        f"mean over {plural(one.corruptions, 'corruption')} and {plural(one.seeds, 'seed')}"
    )


def _percent(value: MeanStd) -> str:
    return _mean_std(value, 100, 2)


def _mean_std(value: MeanStd, scale: float, digits: int) -> str:
    mean = decimal(scale * value.mean, digits)
    return mean if value.runs < 2 else f"{mean} ± {decimal(scale * value.std, digits)}"


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, [name, *values])) + GAP for name, values in columns.items()) - GAP
