"""The environment of a measurement: versions, machine, commit."""

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

import ttc


def cores() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def environment() -> dict[str, str | int | None]:
    """Return the versions, the machine and the commit, to be stored with every result."""
    return {
        "ttc": ttc.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of a source checkout, marked when files differ from it; None for an installed package."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True)
        found = subprocess.run(command, cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() or None if tracked.returncode == found.returncode == 0 else None
