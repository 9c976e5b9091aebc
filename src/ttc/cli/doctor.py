"""``ttc doctor``: check the installation, the data and the checkpoints, and suggest what to do next."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import ttc
from ttc.cli.data import MARKS, DataOption
from ttc.cli.wording import plural

if TYPE_CHECKING:
    from rich.table import Table

EXTRAS = {  # of pyproject.toml: what each is for, and its requirements by module
    "timm": ("models named timm:NAME", {"timm": "timm>=1.0"}),
    "torchvision": ("models named torchvision:NAME", {"torchvision": "torchvision>=0.19"}),
    "onnx": (
        "ttc adapt --export",
        {"onnx": "onnx>=1.17", "onnxruntime": "onnxruntime>=1.20", "onnxscript": "onnxscript>=0.5"},
    ),
    "report": (
        "figures, ttc report",
        {"altair": "altair>=6.0", "jinja2": "jinja2>=3.1", "vl_convert": "vl-convert-python>=1.8"},
    ),
    "diagnose": ("references of ttc diagnose", {"sklearn": "scikit-learn>=1.5"}),
    "parquet": ("Parquet files", {"pyarrow": "pyarrow>=15"}),
}


def doctor(data: DataOption = None) -> None:
    """Check the installation, the data and the checkpoints; the exit code is 1 if data is damaged."""
    from rich.table import Table

    from ttc.cli.listing import make_console
    from ttc.data.catalogue import SOURCES
    from ttc.data.fetching import source_status
    from ttc.data.location import data_root

    console = make_console()
    root = data_root(data)
    for line in (*_environment(), _directory(root, data)):
        console.print(line, soft_wrap=False, markup=False)
    console.print()
    console.print(_extras(), soft_wrap=False)
    states = {name: source_status(name, root) for name in SOURCES}
    table = Table("dataset or checkpoint", "state", "details, or the files expected", box=None, pad_edge=False)
    for name, found in states.items():
        table.add_row(name, MARKS[found.status], found.detail, style="dim" if found.status == "missing" else "")
    console.print()
    console.print(table, soft_wrap=False)
    console.print("\nnext steps:")
    damaged = [name for name, found in states.items() if found.status == "damaged"]
    for line in _advice(damaged, {name for name, found in states.items() if found.status == "present"}):
        console.print(f"  {line}")
    if damaged:
        raise typer.Exit(1)


def _environment() -> list[str]:
    import platform

    import numpy
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, everything runs on the CPU"
    threads = plural(torch.get_num_threads(), "thread")
    return [
        f"ttc {ttc.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"torch {torch.__version__}, numpy {numpy.__version__}; {device}",
        f"{plural(os.cpu_count() or 1, 'CPU core')}, torch uses {threads} (OMP_NUM_THREADS changes it)",
    ]


def _extras() -> "Table":
    """List the optional packages: present, missing, or installed and broken."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("optional", "state", "details", box=None, pad_edge=False)
    for name, (purpose, requirements) in EXTRAS.items():
        state, detail = _extra(requirements)
        detail = detail if state == "present" else f"for {purpose}: {detail}"
        table.add_row(
            name, MARKS.get(state, f"[red]{state}[/]"), escape(detail), style="dim" if state == "missing" else ""
        )
    return table


def _extra(requirements: Mapping[str, str]) -> tuple[str, str]:
    """Return the state of an extra, and the versions that are there or the first problem and what to do about it."""
    import sys

    from ttc.models.import_problems import find_import_problem

    problems = {name: find_import_problem(name, requirement) for name, requirement in requirements.items()}
    broken = {name: problem for name, problem in problems.items() if problem is not None and problem.broken}
    for name, problem in broken.items():
        return "broken", f"{name} cannot be imported ({problem.reason}); {problem.advice}"
    missing = [requirements[name] for name, problem in problems.items() if problem is not None]
    if missing:
        return "missing", f"pip install {' '.join(map(repr, missing))}"
    versions = {name: getattr(sys.modules[name], "__version__", "") for name in requirements}
    return "present", ", ".join(f"{name} {version}".strip() for name, version in versions.items())


def _directory(root: Path, explicit: Path | None) -> str:
    import shutil

    origin = "--data" if explicit else "TTC_DATA" if os.environ.get("TTC_DATA") else "default; TTC_DATA changes it"
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
    lines.append(f"{'ttc demo':<37} see adaptation at work, no download")
    if "cifar10" in present:
        lines.append(f"{'ttc train':<37} train a source model on CIFAR-10")
    for name, why in (
        ("cifar10", "images to train on and corrupt (170 MB)"),
        ("cifar10-c", "images of the CIFAR-10-C table (2.9 GB)"),
        ("robustbench-standard", "model of the CIFAR-10-C table (146 MB)"),
        ("frost", "original frost photographs (2 MB)"),
    ):
        if name not in present and name not in damaged:
            lines.append(f"ttc data fetch {name:<22} {why}")
    return lines
