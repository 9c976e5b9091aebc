"""Names with options, written as a call: ``ttc(bandwidth=2)``, ``label-shift(alpha=0.1)``, ``SGD(lr=0.001)``."""

import ast
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ttc.errors import TTCError

Value = bool | int | float | str | None | list["Value"]
_FORM = re.compile(r"\s*([A-Za-z][\w.+-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Spec:
    """A name and its options in order of name; equal specs are written alike.

    >>> Spec.read("ttc(spc_weight=0.5, bandwidth=2)")
    Spec(name='ttc', options=(('bandwidth', 2), ('spc_weight', 0.5)))
    >>> str(Spec.read("ttc(spc_weight=0.5, bandwidth=2)"))
    'ttc(bandwidth=2, spc_weight=0.5)'
    >>> str(Spec.read("tent"))
    'tent'
    """

    name: str
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(f"{key}={value!r}" for key, value in self.options)
        return f"{self.name}({inner})" if inner else self.name

    @classmethod
    def of(cls, name: str, options: Mapping[str, object]) -> "Spec":
        """The spec of a name and a mapping of plain values."""
        return cls(name, tuple(sorted((key, _plain(name, key, value)) for key, value in options.items())))

    @classmethod
    def read(cls, text: str) -> "Spec":
        """The spec that ``text`` writes."""
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
                "or 'quoted text' as values"
            ) from error
        return cls.of(name, options)


def listed(text: str) -> list[str]:
    """The items of a comma-separated list, commas inside brackets and quotes left alone.

    >>> listed("norm, ttc(bandwidth=2, ss=False),tent")
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


def nearest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean '…'?)" when one of the known words is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


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
        f"the option {key} of '{name}' must be a number, a text, true, false or a list, got {type(value).__name__}"
    )
