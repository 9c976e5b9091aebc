"""What the table of methods says about one method, and how its options are described and checked."""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from ttc.core import Adapter
from ttc.errors import TTCError, unknown

Passes = int | tuple[int, int]
"""Passes per batch: a number, or the smallest and the largest one where it depends on options."""


class Option(NamedTuple):
    """An option of a method: its default, the choices where there are any, and what it means."""

    name: str
    default: Any
    choices: tuple[Any, ...]
    meaning: str

    def __str__(self) -> str:
        default = getattr(self.default, "__name__", repr(self.default))
        choices = f"; choices: {', '.join(map(repr, self.choices))}" if self.choices else ""
        return f"{self.name} (default {default}{choices}): {self.meaning}"


@dataclass(frozen=True, kw_only=True)
class Method:
    """A line of the table of methods.

    Args:
        name: What users write.
        build: Maps a :class:`ttc.Classifier`, and options as keywords, to an :class:`ttc.Adapter`.
        changes: What adaptation changes: ``"norm affine"``, ``"norm statistics"``, ``"head"``, ...
        forwards: Forward passes per batch.
        backwards: Backward passes per batch.
        needs: What must be there: ``"large batches"``, ``"source statistics"``, ...
        paper: First author and year.
        predicts: Whether outputs are predictions from ``"before"`` or ``"after"`` the update with the same batch.
        smallest_batch: The smallest batch it accepts.
        memory: What it stores beyond the model and its optimizer, in words; empty for nothing.
        source_images: How many source images it asks for, as the option ``source_images``; 0 if it needs none.
    """

    name: str
    build: Callable[..., Adapter]
    changes: tuple[str, ...] = ()
    forwards: Passes = 1
    backwards: Passes = 0
    needs: tuple[str, ...] = ()
    paper: str = ""
    predicts: Literal["before", "after"] = "before"
    smallest_batch: int = 1
    memory: str = ""
    source_images: int = 0

    @property
    def description(self) -> str:
        """The docstring of the builder, without the list of options; its first line is a summary."""
        return _sections(self._function)[0]

    @cached_property
    def options(self) -> dict[str, Option]:
        """The options that ``ttc.adapt`` passes on to the builder, by name."""
        bound = self.build.keywords if isinstance(self.build, partial) else {}
        meanings, hints = _sections(self._function)[1], _hints(self._function)
        _, *parameters = inspect.signature(self.build).parameters.values()  # the first is the classifier
        return {
            p.name: Option(p.name, p.default, _choices(hints.get(p.name)), meanings.get(p.name, ""))
            for p in parameters
            if p.kind in {p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD} and p.name not in bound
        }

    def validate(self, options: Mapping[str, Any]) -> None:
        """Check the names and types of options.

        Raises:
            TTCError: If an option does not exist, or has a value of the wrong type or outside its choices.
        """
        hints = _hints(self._function)
        for name, value in options.items():
            if name not in self.options:
                raise unknown("option", name, self.options, of=self.name)
            if not _fits(value, hints.get(name, Any)):
                example = ", such as partial(torch.optim.Adam, lr=1e-3)" if name == "optimizer" else ""
                raise TTCError(f"{name} must be {_in_words(hints[name])}{example}, got {_shown(value)}")

    @property
    def _function(self) -> Callable[..., Adapter]:
        function = self.build.func if isinstance(self.build, partial) else self.build
        return inspect.unwrap(function) if function.__doc__ is None else function


def method_of(build: Callable[..., Adapter]) -> Method:
    """Describe a user's own builder, so that it can be used like a method of the table.

    Args:
        build: Maps a :class:`ttc.Classifier`, and options as keywords, to an :class:`ttc.Adapter`.

    Returns:
        A method named ``module:function``.
    """
    function = build.func if isinstance(build, partial) else build
    module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__name__)
    return Method(name=f"{module}:{name}", build=build)


def _sections(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into its prose and the meaning of each argument."""
    prose, arguments, name, inside = [], dict[str, str](), "", False
    for line in (inspect.getdoc(function) or "").splitlines():
        if re.fullmatch(r"[A-Z]\w+:", line):
            inside = line == "Args:"
            if inside:
                continue
        if not inside:
            prose.append(line)
        elif match := re.fullmatch(r"    (\w+): (.*)", line):
            name = match[1]
            arguments[name] = match[2]
        elif line.strip() and name:
            arguments[name] += f" {line.strip()}"
        elif not line.startswith(" ") and line.strip():
            inside = False
    return re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip(), arguments


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):  # a user's builder may lack annotations, or name what cannot be resolved
        return {}


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)


def _choices(hint: Any) -> tuple[Any, ...]:
    return tuple(choice for member in _members(hint) if get_origin(member) is Literal for choice in get_args(member))


def _fits(value: Any, hint: Any) -> bool:
    return any(_fits_member(value, member) for member in _members(hint))


def _fits_member(value: Any, member: Any) -> bool:
    """Tell whether a value fits an annotation; kinds of annotation that are not known here fit everything."""
    origin = get_origin(member) or member
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(member))
    if origin is bool:
        return isinstance(value, bool)
    if origin in {int, float}:
        return isinstance(value, int if origin is int else (int, float)) and not isinstance(value, bool)
    if origin is Callable:
        return callable(value)
    return not isinstance(origin, type) or origin in {tuple, list} or isinstance(value, origin)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"an object of type {type(value).__name__}"


def _in_words(hint: Any) -> str:
    """Say what an annotation allows: "a whole number, 'auto' or None"."""
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a string", type(None): "None"}
    found: list[str] = []
    for member in _members(hint):
        if get_origin(member) is Literal:
            found += map(repr, get_args(member))
        else:
            origin = get_origin(member) or member
            found.append("a callable" if origin is Callable else words.get(origin, _kind_in_words(origin)))
    *others, last = found
    return f"{', '.join(others)} or {last}" if others else last


def _kind_in_words(kind: Any) -> str:
    """Say what a class is: "a tensor"; other annotations as they are written."""
    if not isinstance(kind, type):
        return str(kind)
    name = kind.__name__.lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
