"""Why an optional package cannot be imported, missing told from broken, and what to do about it."""

import importlib
from typing import NamedTuple

import torch

TORCHVISION_AHEAD = 15  # torchvision 0.(N + 15) belongs to torch 2.N


class ImportProblem(NamedTuple):
    """A package that cannot be imported.

    Args:
        broken: Whether it is installed.
        reason: Why it cannot be imported, in a few words.
        advice: The command or the step that helps.
    """

    broken: bool
    reason: str
    advice: str


def find_import_problem(name: str, requirement: str) -> ImportProblem | None:
    """Import a package, and explain why that fails.

    Args:
        name: The package.
        requirement: What to install where it is missing, such as ``timm>=1.0``.

    Returns:
        The problem, None if the package imports.
    """
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken binary extension raises any exception
        return explain(name, requirement, error)
    return None


def explain(name: str, requirement: str, error: Exception) -> ImportProblem:
    """Explain the exception that importing a package raised."""
    if isinstance(error, ModuleNotFoundError):
        missing = error.name or ""
        if missing == name:
            return ImportProblem(False, "not installed", f"pip install '{requirement}'")
        return ImportProblem(True, f"it needs {missing}, which is not installed", f"pip install '{missing}'")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if "torchvision::" in reason and name != "torchvision":
        return ImportProblem(True, f"it imports torchvision, which is broken: {reason}", _matching_torchvision())
    advice = _matching_torchvision() if name == "torchvision" else f"pip install --force-reinstall '{requirement}'"
    return ImportProblem(True, reason, advice)


def _matching_torchvision() -> str:
    """Name the torchvision of this torch: another release, or the CUDA build beside a CPU torch, does not import."""
    version = torch.__version__
    major, minor = version.split(".")[:2]
    release = f" {int(major) - 2}.{int(minor) + TORCHVISION_AHEAD}" if major == "2" and minor.isdigit() else ""
    return f"install torchvision{release}, the build for torch {version}, from the index that torch came from"
