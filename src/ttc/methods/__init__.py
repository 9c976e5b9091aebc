"""The methods by name, and ``adapt``, which builds one around a model."""

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from itertools import compress, product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ttc.core import Adapter, Classifier, Recipe, read_adaptation
from ttc.errors import TTCError
from ttc.methods.compositions import eta, tent, ttc
from ttc.methods.flip import with_flip
from ttc.methods.small_batches import for_small_batches
from ttc.methods.statistics import norm, norm_blend, norm_ema, source
from ttc.methods.t3a import t3a
from ttc.methods.tipi import tipi

STATISTICS = "norm statistics"
AFFINE = "norm affine"
BATCHES = "large batches"


class Method(NamedTuple):
    """A line of the table: the builder, what it changes, forward/backward passes a batch, what it needs, the paper."""

    build: Callable[..., Adapter]
    changes: str
    passes: str
    needs: str
    paper: str

    @property
    def description(self) -> str:
        """What it does, from the builder's docstring; the first line is a summary."""
        build = self.build.func if isinstance(self.build, partial) else self.build
        return inspect.getdoc(build) or ""

    @property
    def options(self) -> list[str]:
        """The keywords that ``adapt`` passes on."""
        bound = self.build.keywords if isinstance(self.build, partial) else {}
        parameters = inspect.signature(self.build).parameters.values()
        return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in bound]


def _component_methods() -> dict[str, Method]:
    """TENT with some, not all and not none, of TTC's components, as ``tent+rla+ss``."""
    found = {}
    for chosen in sorted(
        product([False, True], repeat=4), key=lambda flags: (sum(flags), [not flag for flag in flags])
    ):
        rla, spc, ss, ga = chosen
        if any(chosen) and not all(chosen):
            name = "+".join(["tent", *compress(("rla", "spc", "ss", "ga"), chosen)])
            build = partial(ttc, rla=rla, spc=spc, ss=ss, ga=ga)
            found[name] = Method(build, AFFINE, "2/2" if rla or spc else "1/1", BATCHES, "Lin 2023")
    return found


METHODS: dict[str, Method] = {
    "source": Method(source, "nothing", "1/0", "nothing", "baseline"),
    "norm": Method(norm, STATISTICS, "1/0", BATCHES, "Schneider 2020"),
    "norm-blend": Method(norm_blend, STATISTICS, "1/0", "source statistics", "Schneider 2020"),
    "norm-ema": Method(norm_ema, STATISTICS, "2/0", "source statistics", "Schneider 2020"),
    "t3a": Method(t3a, "the head", "1/0", "a linear head", "Iwasawa 2021"),
    "t3a-paper": Method(partial(t3a, filter_size=1), "the head", "1/0", "a linear head", "as in Lin 2023"),
    "tent": Method(tent, AFFINE, "1/1", BATCHES, "Wang 2021"),
    "eta": Method(eta, AFFINE, "1/1", BATCHES, "Niu 2022"),
    "eta-paper": Method(partial(eta, redundancy_margin=0.05), AFFINE, "1/1", BATCHES, "as in Lin 2023"),
    "tipi": Method(tipi, "norm affine, stats", "3-4/2", "source statistics", "Nguyen 2023"),
    "ttc": Method(ttc, AFFINE, "2/2", BATCHES, "Lin 2023"),
    **_component_methods(),
    "source+flip": Method(with_flip(source), "nothing", "2/0", "nothing", "control"),
    "norm+flip": Method(with_flip(norm), STATISTICS, "2/0", BATCHES, "control"),
    "tent+flip": Method(with_flip(tent), AFFINE, "2/1", BATCHES, "control"),
}
"""The methods by name."""


def adapt(
    model: nn.Module,
    method: str = "ttc",
    *,
    head: str | None = None,
    small_batches: bool | str = False,
    compile: bool = False,
    autocast: bool = False,
    **options: Any,
) -> Adapter:
    """An adapter for ``model``: call it with batches of images, it answers with logits and adapts as it goes.

    ``model`` is never touched: the adapter works on a private copy. ``head`` names the final layer when it cannot be
    told; ``options`` go to the method (``METHODS[method].options`` lists them), ``optimizer`` being a factory such as
    ``partial(torch.optim.Adam, lr=1e-3)``. ``small_batches=True`` makes any method fit for small batches, down to
    single images (:func:`ttc.methods.small_batches.for_small_batches`). ``compile=True`` compiles the network, which
    takes a minute at the first batch of each shape and needs a C++ compiler; ``autocast=True`` lets it calculate in
    bfloat16, where the hardware has it.

    >>> pool = nn.AdaptiveAvgPool2d(1)
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), pool, nn.Flatten(), nn.Linear(8, 5))
    >>> adapter = adapt(model, "ttc")
    >>> adapter(torch.rand(16, 3, 8, 8)).shape
    torch.Size([16, 5])
    >>> adapter.reset()
    """
    found = named(method)
    for option in options:
        if option not in found.options:
            valid = ", ".join(found.options) or "it has none"
            raise TTCError(
                f"'{method}' has no option '{option}'{_nearest(option, found.options)}; its options: {valid}"
            )
    with torch.inference_mode(False):
        classifier = Classifier(model, head)
        classifier.compiles, classifier.autocast = compile, autocast
        adapter = found.build(classifier, **options)
        if small_batches is not False:
            adapter = for_small_batches(adapter, small_batches)
            options["small_batches"] = small_batches
    adapter.recipe = Recipe(method, options if head is None else {**options, "head": head})
    return adapter


def load_adaptation(model: nn.Module, path: str | Path, **options: Any) -> Adapter:
    """The adapter that was saved to ``path``, around the same ``model``, ready to go on as if it had never stopped.

    Method and options are in the file; those that a file cannot hold, such as an optimizer factory, are given again.
    Refused (:class:`ttc.TTCError`) for another model, other options or a damaged file.
    """
    saved = read_adaptation(Path(path))
    recipe = saved.recipe(options)
    adapter = adapt(model, recipe.method, **recipe.options)
    adapter.load(path)
    return adapter


def named(method: str) -> Method:
    """The method of that name; an unknown one is refused with the nearest and all names."""
    if method not in METHODS:
        raise TTCError(
            f"there is no method '{method}'{_nearest(method, list(METHODS))}; the methods: {', '.join(METHODS)}"
        )
    return METHODS[method]


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""
