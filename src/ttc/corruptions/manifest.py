"""The record beside generated data: what made it, and the checksums that prove it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch

from ttc import __version__
from ttc.corruptions.frost_textures import FILES
from ttc.errors import TTCError
from ttc.files import atomic, checksum

NAME = "corruptions.json"


@dataclass(frozen=True)
class CorruptionSettings:
    """Everything that decides the bytes; a folder is only ever filled with one of these."""

    layout: str
    seed: int
    table: str  # "nearest" follows the size of each image
    severities: list[int]  # of a .npy file, in the order of its rows; empty where each has its own folder
    frost: str  # "procedural" or the checksums of the pictures
    source: str  # of CIFAR: the checksum of the file; of a folder: how images are read
    version: str = __version__


@dataclass
class Manifest:
    """The settings of a folder and what is finished in it: a checksum for each whole piece."""

    settings: CorruptionSettings
    checksums: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the manifest; the libraries are those of the last run."""
        libraries = {"numpy": np.__version__, "pillow": PIL.__version__, "torch": torch.__version__}
        with atomic(folder / NAME) as part:
            part.write_text(json.dumps({**asdict(self), "libraries": libraries}, indent=1) + "\n")


def open_manifest(folder: Path, settings: CorruptionSettings) -> Manifest:
    """The manifest of a folder: a new one where it is empty, the old one where it was begun with the same settings."""
    path = folder / NAME
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TTCError(
                f"{folder} holds files that `ttc corrupt` did not make; choose an empty or new folder for the result"
            )
        manifest = Manifest(settings)
        manifest.save(folder)
        return manifest
    try:
        old: dict[str, Any] = json.loads(path.read_text())
        begun = CorruptionSettings(**old["settings"])
        manifest = Manifest(begun, dict(old["checksums"]), dict(old["unreadable"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TTCError(f"{path} is not a manifest of `ttc corrupt`; choose another folder for the result") from error
    for name, value in asdict(settings).items():
        before = getattr(begun, name)
        if before != value:
            raise TTCError(
                f"{folder} was begun with {name} {_short(before)}, now it is {_short(value)}: "
                "go on with the same settings or choose another folder"
            )
    return manifest


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def frost_record(frost_dir: Path | None) -> str:
    """Which frost was used: accuracies on procedural and on original frost differ."""
    if frost_dir is None:
        return "procedural"
    missing = [name for name in FILES if not (frost_dir / name).is_file()]
    if missing:
        raise TTCError(
            f"the frost folder {frost_dir} must hold {', '.join(FILES)}; {', '.join(missing)} is missing: "
            "put it there, or leave the folder out for procedural frost"
        )
    return " ".join(f"{name}:{checksum(frost_dir / name)[:16]}" for name in FILES)


def check_separate(source: Path, destination: Path) -> None:
    """Raise a sentence where the result would fall into the source."""
    if not source.exists():
        raise TTCError(f"{source} does not exist; name a folder of images or a CIFAR folder in binary layout")
    inner, outer = destination.resolve(), source.resolve()
    if inner == outer or outer in inner.parents:
        raise TTCError(f"{destination} lies inside the source {source}; choose a folder outside of it for the result")
