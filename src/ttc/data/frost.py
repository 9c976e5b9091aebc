"""Which frost textures a corrupted dataset uses: procedural ones, or the original images once they are fetched."""

import hashlib
from pathlib import Path

from ttc.data.catalogue import FROST_FILES
from ttc.data.location import data_root
from ttc.errors import TTCError
from ttc.files import checksum

NAMES = tuple(Path(part.path).name for part in FROST_FILES)
PROCEDURAL = "procedural"  # in place of a folder
_ORIGINAL = tuple(str(part.checksum).removeprefix("sha256:") for part in FROST_FILES)


def frost_folder(root: Path) -> Path | None:
    """Return the folder of the original frost textures in a data directory.

    Args:
        root: The data directory; where it has none, those of the default data directory are used.

    Returns:
        The folder that ``ttc data fetch frost`` filled; None if it was never fetched, for procedural textures.

    Raises:
        TTCError: Some of the files are missing: results would silently be those of other textures.
    """
    for folder in dict.fromkeys((root / "frost", data_root() / "frost")):
        missing = [name for name in NAMES if not (folder / name).is_file()]
        if not missing:
            return folder
        if len(missing) < len(NAMES):
            raise TTCError(f"{folder} lacks {', '.join(missing)}: run ttc data fetch frost, or delete the folder")
    return None


def choose_frost(given: Path | None, root: Path) -> Path | None:
    """Return the folder of the frost textures to use, None for procedural ones.

    >>> choose_frost(Path("procedural"), Path())

    Args:
        given: A folder with the five textures, or ``procedural``; None for those that were fetched, if any.
        root: The data directory.

    Returns:
        The absolute folder, or None.

    Raises:
        TTCError: The folder lacks a file.
    """
    if given is None:
        return frost_folder(root)
    if given == Path(PROCEDURAL):
        return None
    describe_frost(given)
    return given.absolute()


def describe_frost(folder: Path | None) -> str:
    """Name the frost textures of a folder for datasets and results.

    >>> describe_frost(None)
    'procedural frost'

    Args:
        folder: A folder with the five textures, or None for procedural ones.

    Returns:
        ``procedural frost``, ``original frost``, or ``own frost`` with a part of the checksum of the files.

    Raises:
        TTCError: The folder lacks a file.
    """
    if folder is None:
        return "procedural frost"
    missing = [name for name in NAMES if not (folder / name).is_file()]
    if missing:
        raise TTCError(f"the frost folder {folder} must contain {', '.join(NAMES)}, missing: {', '.join(missing)}")
    found = tuple(checksum(folder / name) for name in NAMES)
    if found == _ORIGINAL:
        return "original frost"
    return f"own frost {hashlib.sha256(' '.join(found).encode()).hexdigest()[:8]}"
