"""Get data files that are published inside a package on PyPI, without importing or installing the package."""

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from ttc.data.location import unwritable
from ttc.errors import TTCError
from ttc.files import atomic


def copy_installed(package: str, inside: str, names: Sequence[str], into: Path) -> bool:
    """Copy files of an installed package.

    Args:
        package: ``"name==version"``.
        inside: The folder of the files in the package.
        names: The files.
        into: The folder to copy to.

    Returns:
        Whether that version is installed and has all of the files.
    """
    name, _, version = package.partition("==")
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return False
    paths = [Path(str(found.locate_file(f"{inside}/{file}"))) for file in names]
    if found.version != version or not all(path.is_file() for path in paths):
        return False
    for path in paths:
        _write(into / path.name, path.read_bytes())
    return True


def download_wheel(package: str, target: Path) -> None:
    """Download the wheel of ``package`` ("name==version") as ``target``, with the index and settings of pip.

    Raises:
        TTCError: pip is not available, or cannot get the package.
    """
    with TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        ran = subprocess.run([*command, "--dest", scratch, package], capture_output=True, text=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if ran.returncode or not wheels:
            errors = [line for line in ran.stderr.splitlines() if line.strip()]
            reason = next((line for line in errors if line.startswith("ERROR")), errors[-1] if errors else "no wheel")
            raise TTCError(
                f"pip cannot download {package} ({reason.removeprefix('ERROR: ')}): get its wheel in any other way and "
                f"save it as {target}, then run the command again"
            )
        _write(target, wheels[0].read_bytes())


def unpack_wheel(wheel: Path, inside: str, names: Sequence[str], into: Path) -> None:
    """Unpack the files ``names`` in the folder ``inside`` of a wheel to the folder ``into``; nothing else.

    Raises:
        TTCError: The wheel is damaged or lacks a file, or the folder cannot be written.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            contents = {name: archive.read(f"{inside}/{name}") for name in names}
    except (zipfile.BadZipFile, KeyError, OSError, EOFError) as error:
        raise TTCError(f"{wheel} is damaged ({error}): delete it and fetch it again") from error
    for name, content in contents.items():
        _write(into / name, content)


def _write(path: Path, content: bytes) -> None:
    try:
        with atomic(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise unwritable(path.parent, error) from error
