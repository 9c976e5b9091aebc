"""From a method's written form to its adapter and back: defaults filled in, optimizers and views by name."""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ttc import clustering
from ttc.bench.precision import uses_autocast
from ttc.bench.protocol import Protocol
from ttc.bench.spec import Spec, Value
from ttc.core import Adapter
from ttc.errors import TTCError, unknown
from ttc.files import checksum
from ttc.methods import Method, adapt, find_method
from ttc.models.external import import_callable

SMALL_BATCHES = "small_batches"  # an option of ttc.adapt, for every method
_VIEWS = ("horizontal_flip", "vertical_flip", "identity", "RandomRotation", "RandomResizedCrop", "GaussianNoise")


def with_defaults(spec: Spec) -> Spec:
    """Add the defaults of all options to the spec of a method.

    Args:
        spec: A method of the table or a ``module:function``, which is imported, with some of its options, and with
            ``small_batches`` as :func:`ttc.adapt` takes it.

    Returns:
        The spec with every option that can be written down; others keep their default when the adapter is built.

    Raises:
        TTCError: If the method or an option does not exist, or an option without a default is missing.

    Example:
        >>> str(with_defaults(Spec.read("norm-blend(alpha=0.5)")))
        'norm-blend(alpha=0.5, source_pseudo_count=None)'
    """
    method = _method(spec.name)
    for option, _ in spec.options:
        if option not in method.options and option != SMALL_BATCHES:
            raise unknown(f"option of '{spec.name}'", option, [*method.options, SMALL_BATCHES])
    given = {option: _normalize(option, value) for option, value in spec.options}
    if not given.get(SMALL_BATCHES, True):
        del given[SMALL_BATCHES]  # off is the default, and no part of the protocol of cells without it
    for name, entry in method.options.items():
        if entry.default is inspect.Parameter.empty and name not in given:
            raise TTCError(f"'{spec.name}' needs the option {name}: write {spec.name}({name}=...)")
    return Spec.of(spec.name, {**_defaults(method), **given})


def without_defaults(spec: Spec) -> Spec:
    """Leave out the options that have their defaults: the converse of :func:`with_defaults`.

    Example:
        >>> str(without_defaults(with_defaults(Spec.read("ttc(bandwidth=2)"))))
        'ttc(bandwidth=2)'
    """
    defaults = _defaults(_method(spec.name))
    given = {key: value for key, value in spec.options if key not in defaults or repr(defaults[key]) != repr(value)}
    return Spec.of(spec.name, given)


def method_label(protocol: Protocol) -> str:
    """Return the method of a protocol as a user would write it: ``ttc(bandwidth=2)``."""
    return str(without_defaults(Spec.of(protocol.method, json.loads(protocol.options))))


def method_checksum(spec: Spec) -> str:
    """Compute the SHA-256 of the source file of a user's own builder; empty for a method of the table."""
    if not spec.is_address:
        return ""
    function = import_callable(spec.name)
    file = inspect.getsourcefile(inspect.unwrap(function)) if inspect.isroutine(function) else None
    module = inspect.getmodule(function)
    path = file or getattr(module, "__file__", None)
    if path is None or not Path(path).is_file():
        raise TTCError(f"{spec.name} has no source file, which a protocol needs; write the builder in a .py file")
    return checksum(Path(path))


def options_json(spec: Spec) -> str:
    """Return the options as the canonical JSON of a protocol."""
    return json.dumps(dict(spec.options), sort_keys=True, allow_nan=False)


def build(
    model: nn.Module, method: str, options: str, source_images: Tensor | None = None, *, dtype: str = "float32"
) -> Adapter:
    """Build the adapter of a protocol's method.

    Args:
        model: The source model.
        method: The protocol's method; a ``module:function`` is imported.
        options: The protocol's options.
        source_images: The images (M, C, H, W) of the protocol's source split, for a method that needs them.
        dtype: The protocol's type, which the model has.

    Raises:
        TTCError: If the method rejects an option or the model.
    """
    values: dict[str, Any] = {name: _resolve(name, value) for name, value in json.loads(options).items()}
    if source_images is not None:
        values["source_images"] = source_images
    builder = import_callable(method) if ":" in method else method
    try:
        return adapt(model, builder, autocast=uses_autocast(dtype), **values)
    except TypeError as error:
        raise TTCError(f"'{method}' rejects the options {options}: {error}") from error


def build_for_trial(
    model: nn.Module, method: str, options: str, source_images: Tensor | None = None, *, dtype: str = "float32"
) -> Adapter:
    """Build an adapter to look at or to time: as :func:`build` does, without a warm-up on source images."""
    values = json.loads(options)
    if "warm_up_samples" in values:
        values["warm_up_samples"] = 0
    return build(model, method, json.dumps(values), source_images, dtype=dtype)


def source_images_asked(method: str) -> int:
    """Return how many source images a method asks for; 0 if it needs none."""
    return 0 if ":" in method else find_method(method).source_images


def smallest_batch(method: str) -> int:
    """Return the smallest batch that a method accepts."""
    return 1 if ":" in method else find_method(method).smallest_batch


def describe_optimizers(adapter: Adapter) -> str:
    """Return the optimizers of an adapter as ``Adam(lr=0.001)``, without torch's defaults; ``none`` if it has none."""
    return " + ".join(_describe(optimizer) for optimizer in adapter.optimizers()) or "none"


def _method(name: str) -> Method:
    return find_method(import_callable(name) if ":" in name else name)


@cache
def _defaults(method: Method) -> Mapping[str, Value]:
    """The defaults that can be written down: plain values, and views by name."""
    found: dict[str, Value] = {}
    for option in method.options.values():
        value = option.default
        if option.name == "view" and getattr(value, "__name__", None) in _VIEWS:
            value = value.__name__
        if value is None or isinstance(value, bool | int | float | str | list | tuple):
            found[option.name] = list(value) if isinstance(value, tuple) else value
    return found


def _normalize(option: str, value: Value) -> Value:
    """An optimizer or a view in its one written form, rejected where there is none of that name."""
    if isinstance(value, str) and option in {"optimizer", "view"}:
        spec = Spec.read(value)
        _resolve(option, str(spec))
        return str(spec)
    return value


def _resolve(option: str, value: Value) -> object:
    if option == "optimizer" and isinstance(value, str):
        return _optimizer(Spec.read(value))
    if option == "view" and isinstance(value, str):
        return _view(Spec.read(value))
    return value


def _optimizer(spec: Spec) -> Callable[..., Optimizer]:
    known = {name: kind for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    known = {name: kind for name, kind in known.items() if issubclass(kind, Optimizer) and kind is not Optimizer}
    if spec.name not in known:
        raise unknown("torch optimizer", spec.name, known)
    factory = partial(known[spec.name], **dict(spec.options))
    try:
        factory([nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        raise TTCError(f"the optimizer {spec} cannot be built: {error}") from error
    return factory


def _view(spec: Spec) -> Callable[[Tensor], Tensor]:
    if spec.name not in _VIEWS:
        raise unknown("view", spec.name, _VIEWS)
    found: Any = getattr(clustering, spec.name)
    try:
        view: Callable[[Tensor], Tensor] = found(**dict(spec.options)) if isinstance(found, type) else found
    except TypeError as error:
        raise TTCError(f"the view {spec} cannot be built: {error}") from error
    return view


def _describe(optimizer: Optimizer) -> str:
    parameters = inspect.signature(type(optimizer)).parameters
    usual: Mapping[str, object] = {name: parameter.default for name, parameter in parameters.items()}
    chosen = {name: value for name, value in optimizer.defaults.items() if name == "lr" or usual.get(name) != value}
    plain = {name: value for name, value in chosen.items() if name in parameters}
    return str(Spec.of(type(optimizer).__name__, plain))
