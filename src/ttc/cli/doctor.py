"""``ttc doctor``: check the installation, the data and the checkpoints, and suggest what to do next."""

import os
from pathlib import Path

import typer

import ttc
from ttc.cli.data import MARKS, DataOption


def doctor(data: DataOption = None) -> None:
    """Check the installation, the data and the checkpoints; the exit code is 1 if anything is damaged."""
    from rich.console import Console
    from rich.table import Table

    from ttc.data.catalogue import SOURCES
    from ttc.data.fetching import source_status
    from ttc.data.location import data_root

    console = Console()
    for line in _environment():
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    root = data_root(data)
    console.print(_directory(root, data), soft_wrap=True, highlight=False, markup=False)
    states = {name: source_status(name, root) for name in SOURCES}
    table = Table("dataset or checkpoint", "state", "details", box=None, pad_edge=False)
    for name, found in states.items():
        detail = f"expected: {found.detail}" if found.status == "missing" else found.detail
        table.add_row(name, MARKS[found.status], detail, style="dim" if found.status == "missing" else "")
    console.print(table)
    console.print("\nnext steps:", highlight=False)
    damaged = [name for name, found in states.items() if found.status == "damaged"]
    for line in _advice(damaged, {name for name, found in states.items() if found.status == "present"}):
        console.print(f"  {line}", soft_wrap=True, highlight=False)
    if damaged:
        raise typer.Exit(1)


def _environment() -> list[str]:
    import platform

    import numpy
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, everything runs on the CPU"
    return [
        f"ttc {ttc.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"torch {torch.__version__}, numpy {numpy.__version__}; {device}",
        f"{os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads (OMP_NUM_THREADS changes it)",
        *(f"optional {name}: {_extra(name)}" for name in ("timm", "torchvision")),
    ]


def _extra(name: str) -> str:
    """Return the version of an optional package, or why it is unavailable."""
    import importlib

    from ttc.models.external import REQUIREMENTS

    try:
        return str(getattr(importlib.import_module(name), "__version__", "installed"))
    except ModuleNotFoundError as error:
        if error.name != name:  # it is installed, and what it needs is not
            return f"installed, but it needs {error.name}, which is not: pip install {error.name}"
        return f"not installed; needed for models named {name}:NAME: pip install '{REQUIREMENTS.get(name, name)}'"
    except Exception as error:  # a broken binary extension raises any exception
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return f"installed but cannot be imported ({reason}): install the build that matches torch"


def _directory(root: Path, explicit: Path | None) -> str:
    import shutil

    origin = (
        "--data" if explicit else "TTC_DATA" if os.environ.get("TTC_DATA") else "default; set TTC_DATA to change it"
    )
    existing = next(path for path in (root, *root.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return f"data directory {root} ({origin}): not writable; choose another with --data or TTC_DATA"
    free = shutil.disk_usage(existing).free / 1e9
    return (
        f"data directory {root} ({origin}): {'exists' if existing == root else 'not created yet'}, {free:.0f} GB free"
    )


def _advice(damaged: list[str], present: set[str]) -> list[str]:
    """List the commands to run next, most urgent first."""
    from ttc.data.catalogue import SOURCES

    lines = [f"ttc data fetch {name:<22} download the damaged files again" for name in damaged if SOURCES[name].file]
    lines.append(f"{'ttc demo':<37} see adaptation at work, no download needed")
    if "cifar10" in present:
        lines.append(f"{'ttc train':<37} train a source model on CIFAR-10")
    for name, why in (
        ("cifar10", "images for training and on-the-fly corruption (170 MB)"),
        ("cifar10-c", "images of the CIFAR-10-C table of the paper (2.9 GB)"),
        ("robustbench-standard", "checkpoint of the CIFAR-10-C table of the paper (about 146 MB)"),
        ("frost", "original frost textures, for frost as in the published datasets (2 MB)"),
    ):
        if name not in present and name not in damaged:
            lines.append(f"ttc data fetch {name:<22} {why}")
    return lines
