"""The methods by name, and ``adapt``, which builds one around a model."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ttc.core import Adapter, AdapterConfig, Classifier, InputNormalization, read_adaptation
from ttc.core.input_checks import find_softmax
from ttc.core.interface import PROBABILITIES
from ttc.errors import TTCError, unknown
from ttc.fast import accelerate_
from ttc.methods.flip import with_flip
from ttc.methods.method import Method, Option, method_of
from ttc.methods.small_batches import with_small_batches

__all__ = ["METHODS", "Method", "Option", "adapt", "find_method", "load_adaptation", "register"]

_MODULES = (
    "source",
    "norm",
    "t3a",
    "tent",
    "eta",
    "tipi",
    "ttc",
    "steady",
    "lame",
    "shot_im",
    "delta",
    "memo",
    "tast",
    "tsd",
    "cotta",
    "rotta",
    "rmt",
    "tesla",
    "adacontrast",
    "eata",
    "sar",
    "rdumb",
    "deyo",
    "come",
    "roid",
)  # one file per method, with its entry METHOD and those of its VARIANTS
_WITH_FLIP = ("source", "norm", "tent")


def _table() -> dict[str, Method]:
    modules = [import_module(f"ttc.methods.{name}") for name in _MODULES]
    entries: list[Method] = [entry for module in modules for entry in (module.METHOD, *getattr(module, "VARIANTS", ()))]
    methods = {entry.name: entry for entry in entries}
    controls = [with_flip(methods[name]) for name in _WITH_FLIP]
    return {**methods, **{control.name: control for control in controls}}


METHODS: dict[str, Method] = _table()
"""The methods by name."""


def register(method: Method) -> None:
    """Add a method to :data:`METHODS` of this process, under its name.

    Args:
        method: The entry; ``ttc.adapt(model, builder)`` needs none.

    Raises:
        TTCError: If the name is taken.
    """
    if method.name in METHODS:
        raise TTCError(f"there is a method '{method.name}' already; choose another name")
    METHODS[method.name] = method


def find_method(method: str | Callable[..., Adapter]) -> Method:
    """Return the entry of a name, or make one for a user's own builder.

    Args:
        method: A key of :data:`METHODS`, or a callable that maps a :class:`ttc.Classifier` to an adapter.

    Raises:
        TTCError: If there is no method of that name.
    """
    if isinstance(method, str):
        if method not in METHODS:
            raise unknown("method", method, METHODS)
        return METHODS[method]
    if isinstance(method, nn.Module | Adapter) or not callable(method):
        raise TTCError(f"expected a method's name or a builder function, got {type(method).__name__}")
    return method_of(method)


def adapt(
    model: nn.Module,
    method: str | Callable[..., Adapter] = "ttc",
    *,
    head: str | None = None,
    normalize: InputNormalization | None = None,
    forward: Callable[[nn.Module, Tensor], Any] | None = None,
    output: Callable[[Any], Tensor] | str | None = None,
    small_batches: bool | str = False,
    accelerate: bool = True,
    compile: bool = False,
    autocast: bool = False,
    **options: Any,
) -> Adapter:
    """Build an adapter for ``model``: call it with batches of images, it returns logits and adapts as it goes.

    ``model`` is never changed: the adapter works on a private copy.

    Args:
        model: Any image classifier.
        method: A name of :data:`ttc.METHODS`, or a builder of your own that maps a :class:`ttc.Classifier`, and options
            as keywords, to an :class:`ttc.Adapter`.
        head: The name of the final layer, where it cannot be found.
        normalize: ``(mean, std)`` per channel, for a model that expects standardized images: pass images in [0, 1], the
            adapter's copy standardizes them. Views, noise and ``epsilon`` of a method then mean pixels.
        forward: How to call the model where ``model(images)`` does not work, such as
            ``lambda model, images: model(pixel_values=images)``; it is then not accelerated.
        output: A function from what the model returns to logits (N, K), or ``"probabilities"`` for a model that ends in
            softmax. Without it: a tensor, the first of a tuple or list, ``logits`` of a dict or an object.
        small_batches: ``True`` converts the method for small batches, down to single images; ``"average"``, ``"blend"``
            or ``"window"`` choose how (:func:`ttc.methods.small_batches.with_small_batches`).
        accelerate: Run the network in a faster form with the same outputs up to rounding (:mod:`ttc.fast`); ``False``
            runs it as written.
        compile: Compile the network: a minute at the second batch of each shape, needs a C++ compiler.
        autocast: Compute in bfloat16 where the hardware has it.
        **options: Options of the method (``ttc methods NAME`` explains them); ``optimizer`` is a factory such as
            ``partial(torch.optim.Adam, lr=1e-3)``.

    Returns:
        The adapter; ``adapter.reset()`` restores the state from before the first batch.

    Raises:
        TTCError: If the method or an option does not exist, or the model cannot be adapted by it.

    Example:
        >>> pool = nn.AdaptiveAvgPool2d(1)
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), pool, nn.Flatten(), nn.Linear(8, 5))
        >>> adapter = adapt(model, "ttc")
        >>> adapter(torch.rand(16, 3, 8, 8)).shape
        torch.Size([16, 5])
        >>> adapter.reset()
    """
    entry = find_method(method)
    entry.validate(options)
    interface = {"head": head, "normalize": normalize, "forward": forward, "output": output}
    if normalize is not None and options.get("standardized") is not None:
        raise TTCError(
            "normalize takes images in [0, 1] and standardized= those that were standardized; give one of them"
        )
    if forward is not None and (compile or autocast):
        raise TTCError(
            "compile and autocast apply to model(images) alone; leave them out, or wrap the model, not forward"
        )
    with torch.inference_mode(False):
        classifier = Classifier(model, head, normalize=normalize, forward=forward, output=output)
        _require_logits(model, classifier)
        adapter = entry.build(classifier, **options)
        if not isinstance(adapter, Adapter):
            raise TTCError(f"the builder '{entry.name}' must return a ttc.Adapter, got {type(adapter).__name__}")
        if small_batches is not False:
            adapter = with_small_batches(adapter, small_batches)
            options["small_batches"] = small_batches
        if accelerate and forward is None:
            for network in adapter.networks():
                if isinstance(network, Classifier):
                    accelerate_(network, compile=compile, autocast=autocast)
        adapter.mark_initial()
    given = {name: value for name, value in interface.items() if value is not None}
    adapter.config = AdapterConfig(entry.name, {**options, **given}).without_tensors()
    return adapter


def _require_logits(model: nn.Module, classifier: Classifier) -> None:
    """Reject a model whose outputs can only be probabilities, or a single number."""
    if classifier.num_classes == 1:
        raise TTCError(
            "the head has one output, and adaptation needs a logit per class; for a yes-or-no question give it two "
            "rows, the first of zeros and the second as it is"
        )
    if classifier.interface.output is None and find_softmax(model) is not None:
        raise TTCError(PROBABILITIES)


def load_adaptation(
    model: nn.Module, path: str | Path, *, method: Callable[..., Adapter] | None = None, **options: Any
) -> Adapter:
    """Rebuild the adapter that was saved to ``path`` around the same ``model``, to resume as if never stopped.

    Args:
        model: The model that was adapted, as it was.
        path: A file written by :meth:`ttc.Adapter.save`.
        method: The builder, where the file was saved by a builder of your own: a file never imports code.
        **options: Options that a file cannot hold, such as an optimizer factory; the others are in the file.

    Returns:
        The adapter in its saved state.

    Raises:
        TTCError: If the file is damaged, or of another model, method or options.
    """
    saved = read_adaptation(Path(path))
    config = saved.config(options)
    if method is None and config.method not in METHODS:
        raise TTCError(f"{path} was saved by '{config.method}', no method of this version; pass its builder as method=")
    try:
        adapter = adapt(model, method or config.method, **config.options)
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # options of a damaged or crafted file
        raise TTCError(f"{path} names options that '{config.method}' cannot have ({error}); save it again") from error
    adapter.load(path)
    return adapter
