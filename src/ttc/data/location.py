"""The data directory, which stores datasets, checkpoints and caches."""

import os
import sys
from pathlib import Path

from ttc.errors import TTCError


def data_root(explicit: Path | None = None) -> Path:
    """Return the directory that stores datasets, checkpoints and caches.

    Args:
        explicit: The directory to use (``--data`` on the command line); by default the environment variable
            ``TTC_DATA``, else ``ttc`` in the platform's cache directory.

    Returns:
        The absolute path, which need not exist yet.

    Raises:
        TTCError: The path is a file.
    """
    chosen = explicit or (Path(os.environ["TTC_DATA"]) if os.environ.get("TTC_DATA") else None)
    root = (chosen or _platform_cache() / "ttc").expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise TTCError(f"the data directory {root} is a file: choose a directory with --data or TTC_DATA")
    return root


def dataset_folder(root: Path, name: str) -> Path:
    """Return the folder ``name`` in ``root``, or ``root`` itself if it is that folder."""
    return root if root.name == name and not (root / name).exists() else root / name


def absent(what: str, path: Path, fetch: str | None) -> TTCError:
    """Make the error for missing data: where it was expected and how to get it."""
    way = f"run: ttc data fetch {fetch}" if fetch else "ttc doctor shows where to put it"
    return TTCError(f"{what} was not found at {path}; {way} (or choose another directory with --data or TTC_DATA)")


def unwritable(path: Path, error: OSError) -> TTCError:
    """Make the error for a directory that cannot be written to."""
    reason = error.strerror or error
    return TTCError(f"cannot write to {path} ({reason}); choose a writable directory with --data or TTC_DATA")


def _platform_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
