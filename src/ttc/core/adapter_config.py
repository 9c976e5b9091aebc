"""How an adapter was built: its method, and options as JSON values, those without one described in words."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ttc.core.state import PLAIN, tensors_digest

if TYPE_CHECKING:
    from ttc.core.adapter import Adapter

DEFAULT = {"described": "its default"}


@dataclass(frozen=True)
class AdapterConfig:
    """How an adapter was built.

    Args:
        method: The name of the method.
        options: The options that were passed to it.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Return the options as JSON values; those without one, such as a function, as ``{"described": "..."}``."""
        return {name: _described(value) for name, value in self.options.items()}

    def without_tensors(self) -> "AdapterConfig":
        """Return the config with descriptions of tensors, such as source images, which an adapter need not keep."""
        options = {name: _described(v) if isinstance(v, Tensor) else v for name, v in self.options.items()}
        return AdapterConfig(self.method, options)

    def shown(self) -> dict[str, str]:
        """Return the options as short text."""
        return {name: _in_words(value) for name, value in self.options.items()}


def config_of(adapter: "Adapter") -> AdapterConfig:
    """Return the config that ``ttc.adapt`` recorded, or the class name of an adapter that was built by hand."""
    return adapter.config or AdapterConfig(type(adapter).__name__)


def differing_option(saved: Mapping[str, Any], config: AdapterConfig) -> tuple[str, str, str] | None:
    """Return the name and both texts of the first option in which a file and an adapter differ; None if none does."""
    own = json.loads(json.dumps(config.described()))
    for name in [*saved, *own]:
        values = saved.get(name, DEFAULT), own.get(name, DEFAULT)
        if values[0] != values[1]:
            return name, option_text(values[0]), option_text(values[1])
    return None


def are_options(options: object) -> bool:
    """Tell whether these are keyword arguments of a method, none of which replaces the model or the method."""
    return isinstance(options, dict) and all(
        name.isidentifier() and name not in {"model", "method"} and _is_option(value) for name, value in options.items()
    )


def is_description(value: object) -> bool:
    """Tell whether an option of a file is described in words, so that it cannot be built from them."""
    if isinstance(value, list):
        return any(map(is_description, value))
    return isinstance(value, dict)


def option_text(value: Any) -> str:
    """Return an option of a file as text."""
    if isinstance(value, list):
        return f"({', '.join(map(option_text, value))})"
    return str(value["described"]) if isinstance(value, dict) else repr(value)


def as_argument(value: Any) -> Any:
    """Return an option of a file as the argument that it was: JSON has lists alone, options have tuples."""
    return tuple(map(as_argument, value)) if isinstance(value, list) else value


def _is_option(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_option, value))
    if isinstance(value, dict):
        return set(value) == {"described"} and isinstance(value["described"], str)
    return isinstance(value, PLAIN)


def _described(value: object) -> Any:
    if isinstance(value, PLAIN) or (isinstance(value, dict) and set(value) == {"described"}):
        return value
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    return {"described": _in_words(value)}


def _in_words(value: object) -> str:
    if isinstance(value, functools.partial):
        arguments = [*map(_in_words, value.args), *(f"{key}={_in_words(item)}" for key, item in value.keywords.items())]
        return f"partial({', '.join([_in_words(value.func), *arguments])})"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} with SHA-256 {tensors_digest({'': value})[:12]}"
    if hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    if is_dataclass(value) and not isinstance(value, type):
        given = [f"{part.name}={_in_words(getattr(value, part.name))}" for part in fields(value) if part.init]
        return f"{type(value).__name__}({', '.join(given)})"
    return repr(value) if isinstance(value, (*PLAIN, list, tuple, dict)) else f"{type(value).__qualname__} object"
