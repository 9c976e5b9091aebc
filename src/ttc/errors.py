"""The one error a caller can put right, and the one way to report an unknown name."""

import difflib
from collections.abc import Iterable


class TTCError(ValueError):
    """Invalid input, in one sentence: what was expected, what came, what to do. The command line prints it bare."""


def unknown(kind: str, name: str, known: Iterable[str], *, of: str = "") -> TTCError:
    """Make the error for a name that does not exist, with the nearest known one as a suggestion.

    Args:
        kind: What is named, such as ``"method"``.
        name: What the user wrote.
        known: The valid names, in the order to list them.
        of: What the name belongs to, such as the method of an option.

    Returns:
        The error, to be raised.

    Example:
        >>> print(unknown("method", "tend", ["norm", "tent"]))
        unknown method 'tend' (did you mean 'tent'?); choose from: norm, tent
        >>> print(unknown("model", "resnet21", ["resnet20", "resnet32"]))
        unknown model 'resnet21' (did you mean 'resnet20'?); choose from: resnet20, resnet32
    """
    names = list(known)
    lowered = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=len(lowered) or 1)
    best = max(close, key=lambda other: _similarity(name.lower(), other), default=None)  # the first of several
    suggestion = f" (did you mean '{lowered[best]}'?)" if best is not None else ""
    owner = f" of '{of}'" if of else ""
    choices = f"choose from: {', '.join(names)}" if names else "there is none"
    return TTCError(f"unknown {kind} '{name}'{owner}{suggestion}; {choices}")


def _similarity(one: str, other: str) -> tuple[float, int]:
    """Compare two names; of those equally close, the one that begins alike is meant."""
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return difflib.SequenceMatcher(None, other, one).ratio(), start
