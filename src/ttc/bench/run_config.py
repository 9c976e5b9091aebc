"""The configuration of a run, from a TOML file and from flags, under the same names."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ttc.bench.environment import cores
from ttc.bench.grid import Grid
from ttc.bench.spec import Spec, split_list
from ttc.bench.workload import Workload
from ttc.errors import TTCError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_WORKLOAD = {
    "dataset": "dataset",
    "model": "model",
    "checkpoint": "checkpoint",
    "data": "root",
    "statistics": "statistics",
    "source_split": "source_split",
    "frost_dir": "frost_dir",
}


@dataclass(frozen=True)
class RunConfig:
    """What ``ttc run`` runs, on which data and model, where results go, and the number of processes."""

    grid: Grid
    workload: Workload
    store: Path
    workers: int


def load_config(file: Path | None, flags: Mapping[str, object], *, allow_code: bool = False) -> RunConfig:
    """Read a TOML file, if any, and replace its values by the flags that are given.

    Args:
        file: The TOML file.
        flags: The command line's flags by name, None where a flag was not given.
        allow_code: Whether the file may name a ``module:function``, whose code would run; flags may.

    Raises:
        TTCError: If the file cannot be read, a setting does not exist or has the wrong type, or the file names code.
    """
    chosen = {name: value for name, value in flags.items() if value is not None}
    read = {name: value for name, value in (_read(file) if file else {}).items() if name not in chosen}
    if not allow_code:
        _reject_code(read, file)
    given = {**read, **chosen}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _KINDS:
            raise unknown("setting", name, _KINDS)
        values[name] = _KINDS[name](name, value)
    if values.get("workers", 1) < 1:
        raise TTCError(f"the number of workers must be at least 1, got {values['workers']}")
    axes = {field.name for field in fields(Grid)}
    return RunConfig(
        Grid(**{name: value for name, value in values.items() if name in axes}),
        Workload(**{_WORKLOAD[name]: value for name, value in values.items() if name in _WORKLOAD}),
        values.get("store", Path("results.sqlite")),
        values.get("workers", cores()),
    )


def _read(file: Path) -> dict[str, object]:
    try:
        with file.open("rb") as opened:
            return tomllib.load(opened)
    except OSError as error:
        raise TTCError(f"cannot read the configuration {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TTCError(f"{file} is not valid TOML: {error}") from error


def _reject_code(read: Mapping[str, object], file: Path | None) -> None:
    """Reject a file that names functions: a file from elsewhere must not run code unless the user says so."""
    named = [read["model"]] if isinstance(read.get("model"), str) else []
    methods = _specs("methods", read["methods"]) if "methods" in read else ()
    named += [spec.name for spec in methods]
    for name in named:
        kind, _, rest = str(name).partition(":")
        if rest and kind not in {"timm", "torchvision"}:
            raise TTCError(
                f"{file} names {name}, whose code would run; if you trust it, add --allow-code, or name it with a flag"
            )


def _items(value: object) -> list[object]:
    return [*split_list(value)] if isinstance(value, str) else value if isinstance(value, list) else [value]


def _specs(name: str, value: object) -> tuple[Spec, ...]:
    found = []
    for item in _items(value):
        if isinstance(item, str):
            found.append(Spec.read(item))
        elif isinstance(item, dict) and isinstance(item.get("name"), str):
            found.append(Spec.of(item["name"], {key: option for key, option in item.items() if key != "name"}))
        else:
            raise TTCError(f"{name} must be strings such as 'ttc(bandwidth=2)' or tables with a name, got {item!r}")
    return tuple(found)


def _strings(name: str, value: object) -> tuple[str, ...]:
    return tuple(_string(name, item) for item in _items(value))


def _numbers(name: str, value: object) -> tuple[int, ...]:
    return tuple(_number(name, item) for item in _items(value))


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TTCError(f"{name} must be a string, got {value!r}")
    return value


def _number(name: str, value: object) -> int:
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TTCError(f"{name} must be a whole number, got {value!r}")
    return value


def _path(name: str, value: object) -> Path:
    return value if isinstance(value, Path) else Path(_string(name, value)).expanduser()


_KINDS: dict[str, Callable[[str, object], Any]] = {
    "methods": _specs,
    "corruptions": _strings,
    "severities": _numbers,
    "images": _number,
    "batch_sizes": _numbers,
    "seeds": _numbers,
    "scenarios": _specs,
    "dataset": _string,
    "model": _string,
    "checkpoint": _path,
    "statistics": _string,
    "data": _path,
    "source_split": _string,
    "frost_dir": _path,
    "store": _path,
    "workers": _number,
    "threads": _number,
    "dtype": _string,
    "device": _string,
}
