"""From a method's written form to its adapter and back: options completed, optimizers and views by name."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ttc import clustering
from ttc.bench.spec import Spec, Value, nearest
from ttc.core import Adapter
from ttc.errors import TTCError
from ttc.methods import METHODS, Method, adapt

_VIEWS = ("horizontal_flip", "vertical_flip", "identity", "RandomRotation", "RandomResizedCrop", "GaussianNoise")


def complete(spec: Spec) -> Spec:
    """The spec of a method with the defaults of all its options, refused where the name or an option does not exist.

    >>> str(complete(Spec.read("norm-blend(alpha=0.5)")))
    'norm-blend(alpha=0.5, source_pseudo_count=None)'
    """
    if spec.name not in METHODS:
        near = nearest(spec.name, METHODS)
        raise TTCError(f"there is no method '{spec.name}'{near}; the methods: {', '.join(METHODS)}")
    method = METHODS[spec.name]
    for option, _ in spec.options:
        if option not in method.options:
            near, known = nearest(option, method.options), ", ".join(method.options) or "it has none"
            raise TTCError(f"'{spec.name}' has no option '{option}'{near}; its options: {known}")
    given = {option: _normal(option, value) for option, value in spec.options}
    return Spec.of(spec.name, {**_defaults(method), **given})


def brief(spec: Spec) -> Spec:
    """The spec as one would write it, without the options that have their defaults: the converse of :func:`complete`.

    >>> str(brief(complete(Spec.read("ttc(bandwidth=2)"))))
    'ttc(bandwidth=2)'
    """
    defaults = _defaults(METHODS[spec.name]) if spec.name in METHODS else {}
    told = {key: value for key, value in spec.options if key not in defaults or repr(defaults[key]) != repr(value)}
    return Spec.of(spec.name, told)


@cache
def _defaults(method: Method) -> Mapping[str, Value]:
    parameters = inspect.signature(method.build).parameters
    defaults = {option: parameters[option].default for option in method.options}
    return {option: value.__name__ if callable(value) else value for option, value in defaults.items()}


def options_text(spec: Spec) -> str:
    """The options as the canonical JSON that a protocol keeps."""
    return json.dumps(dict(spec.options), sort_keys=True, allow_nan=False)


def build(model: nn.Module, method: str, options: str) -> Adapter:
    """The adapter of a protocol's method around ``model``."""
    values: dict[str, Any] = {name: _resolved(name, value) for name, value in json.loads(options).items()}
    try:
        return adapt(model, method, **values)
    except TypeError as error:
        raise TTCError(f"'{method}' cannot take the options {options}: {error}") from error


def optimizer_of(adapter: Adapter) -> str:
    """The optimizers an adapter holds, as ``Adam(lr=0.001)``: options that are not torch's defaults; else ``none``."""
    return " + ".join(_written(optimizer) for optimizer in _optimizers(adapter)) or "none"


def _normal(option: str, value: Value) -> Value:
    """An optimizer or a view in its one written form, refused where torch or we have none of that name."""
    if isinstance(value, str) and option in {"optimizer", "view"}:
        spec = Spec.read(value)
        _resolved(option, str(spec))
        return str(spec)
    return value


def _resolved(option: str, value: Value) -> object:
    if option == "optimizer" and isinstance(value, str):
        return _optimizer(Spec.read(value))
    if option == "view" and isinstance(value, str):
        return _view(Spec.read(value))
    return value


def _optimizer(spec: Spec) -> Callable[..., Optimizer]:
    known = {name: kind for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    known = {name: kind for name, kind in known.items() if issubclass(kind, Optimizer) and kind is not Optimizer}
    if spec.name not in known:
        raise TTCError(f"torch has no optimizer '{spec.name}'{nearest(spec.name, known)}; it has: {', '.join(known)}")
    factory = partial(known[spec.name], **dict(spec.options))
    try:
        factory([nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        raise TTCError(f"the optimizer {spec} cannot be made: {error}") from error
    return factory


def _view(spec: Spec) -> Callable[[Tensor], Tensor]:
    if spec.name not in _VIEWS:
        raise TTCError(f"there is no view '{spec.name}'{nearest(spec.name, _VIEWS)}; the views: {', '.join(_VIEWS)}")
    found: Any = getattr(clustering, spec.name)
    try:
        view: Callable[[Tensor], Tensor] = found(**dict(spec.options)) if isinstance(found, type) else found
    except TypeError as error:
        raise TTCError(f"the view {spec} cannot be made: {error}") from error
    return view


def _optimizers(value: object, depth: int = 3) -> Iterator[Optimizer]:
    if isinstance(value, Optimizer):
        yield value
    elif depth and hasattr(value, "__dict__") and not isinstance(value, nn.Module | Tensor):
        for held in vars(value).values():
            yield from _optimizers(held, depth - 1)


def _written(optimizer: Optimizer) -> str:
    parameters = inspect.signature(type(optimizer)).parameters
    usual: Mapping[str, object] = {name: parameter.default for name, parameter in parameters.items()}
    chosen = {name: value for name, value in optimizer.defaults.items() if name == "lr" or usual.get(name) != value}
    plain = {name: value for name, value in chosen.items() if name in parameters}
    return str(Spec.of(type(optimizer).__name__, plain))
