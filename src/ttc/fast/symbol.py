"""Stand-ins for tensors that record what is done with them, without touching anything but themselves.

A :class:`Symbol` reaches torch's functions through ``__torch_function__``, which torch calls for the arguments of one
call: nothing is patched, so other threads and other models cannot notice a recording.
"""

import dis
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

CONSTANTS = (type(None), bool, int, float, complex, str, type(Ellipsis), torch.dtype, torch.device)
LAYOUTS = (torch.memory_format, torch.layout)
KINDS: dict[str, type] = {"shape": torch.Size, "dtype": torch.dtype, "device": torch.device}
INTEGERS = {"ndim", "dim", "ndimension", "numel", "nelement", "size"}

BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = ("neg", "pos", "invert", "abs")
IN_PLACE = ("iadd", "isub", "imul", "itruediv")


class NotRecordableError(Exception):
    """The network does what a recording cannot follow, such as deciding by a value."""


@dataclass(frozen=True)
class Slot:
    """The place of a value among those of a program: 0 is the input, n the result of the n-th node."""

    index: int


@dataclass(frozen=True)
class Node:
    """One operation: ``kind`` is module, function, method, attribute or tensor; its arguments contain slots.

    A function of ``torch.nn.functional`` is stored by its name, as some of those cannot be pickled.
    """

    kind: str
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function that is called, None for another kind of operation."""
        if self.kind != "function":
            return None
        function: Callable[..., Any] = getattr(F, self.target) if isinstance(self.target, str) else self.target
        return function

    @property
    def operands(self) -> tuple[Slot, ...]:
        """Every slot among the arguments, as often as it occurs."""
        return tuple(slots([*self.args, *(value for _, value in self.kwargs)]))


class Recorder:
    """The operations recorded so far, in order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def record(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        of: type = Tensor,
    ) -> "Symbol":
        """Add an operation and return the symbol of its result, which passes for an instance of ``of``."""
        named = tuple((name, to_slots(value)) for name, value in (kwargs or {}).items())
        self.nodes.append(Node(kind, target, tuple(map(to_slots, args)), named))
        return Symbol(self, len(self.nodes), of)


class Symbol:
    """Stands for a tensor, or a size or another attribute of one; passes for that in ``isinstance``."""

    __slots__ = ("_index", "_kind", "_recorder")

    def __init__(self, recorder: Recorder, index: int, kind: type = Tensor) -> None:
        self._recorder, self._index, self._kind = recorder, index, kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind

    @classmethod
    def __torch_function__(
        cls, function: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> "Symbol":
        symbol = next(_symbols((args, kwargs or {})))
        name = getattr(function, "__name__", "")
        target = name if getattr(F, name, None) is function else function
        return symbol._recorder.record("function", target, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._kind is not Tensor or not hasattr(Tensor, name):
            raise AttributeError(name)
        if not callable(getattr(Tensor, name)):
            kind = int if name in INTEGERS else KINDS.get(name, Tensor)
            return self._recorder.record("attribute", name, (self,), of=kind)

        def method(*args: Any, **kwargs: Any) -> Symbol:
            kind = Tensor if name not in INTEGERS else int if args or kwargs or name != "size" else torch.Size
            return self._recorder.record("method", name, (self, *args), kwargs, of=kind)

        return method

    def __getitem__(self, index: Any) -> "Symbol":
        whole = self._kind is not torch.Size or isinstance(index, slice)
        return self._recorder.record("function", operator.getitem, (self, index), of=self._kind if whole else int)

    def __iter__(self) -> "Iterator[Symbol]":
        """Yield as many items as the caller unpacks into names, as in ``n, c, h, w = x.shape``."""
        frame = sys._getframe(1)
        for instruction in dis.get_instructions(frame.f_code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return iter([self[i] for i in range(instruction.argval)])
        raise NotRecordableError("a loop over a tensor")

    def _not_recordable(self, *args: object) -> NoReturn:
        raise NotRecordableError("a decision by a value")

    __bool__ = __len__ = __int__ = __float__ = __index__ = __complex__ = _not_recordable
    __contains__ = __setitem__ = __delitem__ = __hash__ = _not_recordable


def _operation(function: Callable[..., Any], *, swapped: bool = False) -> Callable[..., Symbol]:
    def method(self: Symbol, *others: Any) -> Symbol:
        operands = (*others, self) if swapped else (self, *others)
        return self._recorder.record("function", function, operands, of=self._kind)

    return method


for _name in (*BINARY, *COMPARISONS, *UNARY, *IN_PLACE):
    setattr(Symbol, f"__{_name.strip('_')}__", _operation(getattr(operator, _name)))
for _name in BINARY:
    setattr(Symbol, f"__r{_name.strip('_')}__", _operation(getattr(operator, _name), swapped=True))


def to_slots(value: Any) -> Any:
    """Replace the symbols in an argument by their slots.

    Raises:
        NotRecordableError: If the argument contains a tensor or an object that could change.
    """
    kind = type(value)  # isinstance would take a symbol for what it stands for
    if kind is Symbol:
        return Slot(value._index)
    if kind is tuple or kind is torch.Size:
        return tuple(map(to_slots, value))
    if kind is list:
        return list(map(to_slots, value))
    if kind is dict:
        return {key: to_slots(item) for key, item in value.items()}
    if kind is slice:
        return slice(to_slots(value.start), to_slots(value.stop), to_slots(value.step))
    if kind in CONSTANTS or kind in LAYOUTS:
        return value
    raise NotRecordableError(f"an argument of type {kind.__name__}")


def slots(value: Any) -> "Iterator[Slot]":
    """Yield every slot in an argument, in order and as often as it occurs."""
    if type(value) is Slot:
        yield value
    elif type(value) in {tuple, list}:
        for item in value:
            yield from slots(item)
    elif type(value) is dict:
        yield from slots(list(value.values()))
    elif type(value) is slice:
        yield from slots([value.start, value.stop, value.step])


def _symbols(value: Any) -> Iterator[Symbol]:
    if type(value) is Symbol:
        yield value
    elif type(value) in {tuple, list}:
        for item in value:
            yield from _symbols(item)
    elif type(value) is dict:
        yield from _symbols(list(value.values()))
