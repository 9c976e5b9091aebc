"""Names with options, written as a call: ``ttc(bandwidth=2)``, ``label-shift(alpha=0.1)``, ``SGD(lr=0.001)``."""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ttc.errors import TTCError

Value = bool | int | float | str | None | list["Value"]
_FORM = re.compile(r"\s*([A-Za-z_][\w.+-]*(?::[A-Za-z_]\w*)?)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Spec:
    """A name and its options in order of name; equal specs are written alike.

    Args:
        name: The name of a method, scenario, optimizer or view, or ``module:function``.
        options: The options that are given, as (name, value), sorted.

    Example:
        >>> Spec.read("ttc(spc_weight=0.5, bandwidth=2)")
        Spec(name='ttc', options=(('bandwidth', 2), ('spc_weight', 0.5)))
        >>> str(Spec.read("ttc(spc_weight=0.5, bandwidth=2)"))
        'ttc(bandwidth=2, spc_weight=0.5)'
        >>> str(Spec.read("my_module:my_builder"))
        'my_module:my_builder'
    """

    name: str
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(f"{key}={value!r}" for key, value in self.options)
        return f"{self.name}({inner})" if inner else self.name

    @classmethod
    def of(cls, name: str, options: Mapping[str, object]) -> "Spec":
        """Make the spec of a name and options.

        Args:
            name: The name.
            options: Numbers, strings, booleans, None, and lists of them, by name.

        Raises:
            TTCError: If a value is of another type, or not finite.
        """
        return cls(name, tuple(sorted((key, _plain(name, key, value)) for key, value in options.items())))

    @classmethod
    def read(cls, text: str) -> "Spec":
        """Parse ``NAME`` or ``NAME(option=value, ...)``; no code is run.

        Args:
            text: What the user wrote.

        Raises:
            TTCError: If the text has another form.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise TTCError(f"expected NAME or NAME(option=value, ...), got '{text}'")
        name, inner = match.groups()
        try:
            call = ast.parse(f"f({inner or ''})", mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
                raise ValueError("one call with keywords alone")
            if any(word.arg is None for word in call.keywords):
                raise ValueError("every option has a name")
            options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        except (SyntaxError, ValueError) as error:
            raise TTCError(
                f"cannot read the options of '{text}': write {name}(option=value, ...) with numbers, True, False, None "
                "or 'quoted strings' as values"
            ) from error
        return cls.of(name, options)

    @property
    def is_address(self) -> bool:
        """Whether the name is a ``module:function`` of the user's."""
        return ":" in self.name


def split_list(text: str) -> list[str]:
    """Split a comma-separated list, leaving commas inside brackets and quotes alone.

    >>> split_list("norm, ttc(bandwidth=2, ss=False),tent")
    ['norm', 'ttc(bandwidth=2, ss=False)', 'tent']
    """
    items, depth, quote, start = [], 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _plain(name: str, key: str, value: object) -> Value:
    if isinstance(value, list | tuple):
        return [_plain(name, key, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise TTCError(f"the option {key} of '{name}' must be finite, got {value}") from error
        return value
    raise TTCError(
        f"the option {key} of '{name}' must be a number, a string, true, false or a list, got {type(value).__name__}"
    )
