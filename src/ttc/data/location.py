"""Where data, checkpoints and caches live: one directory, chosen in one place."""

import os
import sys
from pathlib import Path

from ttc.errors import TTCError


def data_root(explicit: Path | None = None) -> Path:
    """The directory for all data: ``explicit`` (``--data``), else ``TTC_DATA``, else the platform's cache directory."""
    chosen = explicit or (Path(os.environ["TTC_DATA"]) if os.environ.get("TTC_DATA") else None)
    root = (chosen or _platform_cache() / "ttc").expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise TTCError(f"the data directory {root} is a file: choose a directory with --data or TTC_DATA")
    return root


def dataset_folder(root: Path, name: str) -> Path:
    """The folder ``name`` below ``root``; ``root`` itself where a user pointed straight at the dataset."""
    return root if root.name == name and not (root / name).exists() else root / name


def absent(what: str, path: Path, fetch: str | None) -> TTCError:
    """The error for data that is not there: where it was looked for, and how to get it."""
    way = f"run: ttc data fetch {fetch}" if fetch else "ttc doctor says where to put it"
    return TTCError(f"{what} is not at {path}; {way} (or choose another directory with --data or TTC_DATA)")


def unwritable(path: Path, error: OSError) -> TTCError:
    """The error for a directory that cannot be written to, with the way out."""
    reason = error.strerror or error
    return TTCError(f"cannot write to {path} ({reason}); choose a directory you may write to with --data or TTC_DATA")


def _platform_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
