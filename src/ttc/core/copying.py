"""Copies and pickles of an object that other threads may be changing."""

import copy
import threading
from typing import Any

from ttc.core.part import Part


class CopiedUnderLock:
    """A part whose copies and pickles are taken while it is locked, and get a lock of their own.

    Attributes:
        lock: Held during calls, and while a copy is made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()

    def copied_variables(self) -> dict[str, Any]:
        """Return the attributes that a copy has."""
        kept = {name: value for name, value in vars(self).items() if name != "_copied"}
        return {**kept, "lock": None}

    def __getstate__(self) -> dict[str, Any]:
        if "_copied" not in vars(self):  # a copy, or a call could change it while it is being pickled
            made = copy.deepcopy(self)
            made._mark_copied()  # with what it is made of, so that what they share stays shared
            return made.copied_variables()
        return self.copied_variables()

    def __deepcopy__(self, memo: dict[int, Any]) -> "CopiedUnderLock":
        with self.lock:
            made = object.__new__(type(self))
            memo[id(self)] = made
            made.__setstate__(copy.deepcopy(self.copied_variables(), memo))
        return made

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()

    def _mark_copied(self) -> None:
        self._copied = True
        for part in self.parts() if isinstance(self, Part) else ():
            if isinstance(part, CopiedUnderLock):
                part._mark_copied()
