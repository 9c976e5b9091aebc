"""The one way in: a callable that computes what a network computes, faster."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ttc.core.classifier import Classifier
from ttc.fast.compile import CompiledNetwork
from ttc.fast.graph import HOOKS, capture, has_global_hooks, is_leaf
from ttc.fast.layout import allows_channels_last, set_layout_
from ttc.fast.per_sample import is_per_sample
from ttc.fast.rewrites import BoundProgram, bind

SMALL = 1 << 13  # pixels per batch, up to which several batches share one pass


class FastForward:
    """Computes the output of a network with the network's own layers, faster.

    On a processor the network runs channels last; sums and activations are computed in place, with little saved for
    the backward pass where activations are large; several small batches share one pass, each with batch statistics of
    its own. All of that is decided here, from the network's graph; a network whose graph cannot be captured runs as it
    is. Nothing is patched or traced that other threads or models could notice.

    Layers of the network may be replaced, moved or trained afterwards, and hooks added: the output stays that of the
    network. Copies and pickles of a network together with its FastForward belong together and capture nothing again.

    Args:
        network: A private network in evaluation mode; the weights of its convolutions may change their memory layout.
        compile: Compile the network with ``torch.compile``, see :class:`ttc.fast.compile.CompiledNetwork`.
        autocast: Compute in bfloat16 where the hardware has it.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
        >>> x = torch.rand(2, 3, 8, 8)
        >>> torch.allclose(FastForward(network)(x), network(x), atol=1e-6)
        True
    """

    # What a copy needs, then what is looked up in the network again.
    __slots__ = (
        *("network", "compile", "autocast", "program", "channels_last"),
        *("_bound", "_children", "_forwards", "_hooks", "_inner", "_per_sample", "_plain"),
    )

    def __init__(self, network: nn.Module, *, compile: bool = False, autocast: bool = False) -> None:
        self.network, self.compile, self.autocast = network, compile, autocast
        self.program = capture(network)
        self.channels_last = self.program is not None and allows_channels_last(
            self.program, network, with_views=compile
        )
        if self.channels_last and next(network.parameters(), torch.empty(0)).device.type == "cpu":
            set_layout_(network, torch.channels_last)
        self._bind()

    def __call__(self, x: Tensor, batches: int = 1) -> Any:
        """Compute the output of the network for ``x``.

        Args:
            x: Images (N, C, H, W), or whatever the network takes.
            batches: How many batches of equal size ``x`` contains, as far as :meth:`joins` allows.
        """
        run = self._forward(batches)
        if self.channels_last and x.ndim == 4 and x.device.type == "cpu":
            x = x.contiguous(memory_format=torch.channels_last)
        else:
            x = x.contiguous()
        with torch.autocast(x.device.type, torch.bfloat16) if self.autocast else nullcontext():
            return run(x)

    def joins(self, batches: Sequence[Tensor]) -> bool:
        """Tell whether several batches of one shape can and should share one pass."""
        if len(batches) < 2 or batches[0].numel() // batches[0].shape[1] > SMALL:
            return False
        self._follow_network()
        return self._per_sample

    def _forward(self, batches: int) -> nn.Module | BoundProgram | CompiledNetwork:
        self._follow_network()
        if self._plain:
            return self.network
        if batches not in self._forwards:
            if self.compile:
                self._forwards[batches] = CompiledNetwork(self.network, batches)
            else:
                assert self.program is not None
                self._forwards[batches] = bind(self.program, self.network, batches)
        return self._forwards[batches]

    def _follow_network(self) -> None:
        """Bind again if a layer was replaced or got hooks since."""
        if not self._bound or has_global_hooks():
            return self._bind()
        for children, name, child in self._children:
            if children.get(name) is not child:
                return self._bind()
        return self._bind() if any(self._hooks) else None

    def _bind(self) -> None:
        """Look the layers up, and watch for the changes after which that must be done again."""
        self._bound = True
        self._forwards: dict[int, BoundProgram | CompiledNetwork] = {}
        self._children: list[tuple[dict[str, nn.Module | None], str, nn.Module | None]] = []
        self._hooks: list[dict[int, Any]] = []
        inner = self._inner_modules()
        self._plain = inner is None and not (self.compile and self.program is None)
        self._per_sample = False
        if inner is None or self.program is None:
            self._use_contiguous()
            return
        self._per_sample = is_per_sample(self.program, self.network)
        for module in inner:
            self._children += [(module._modules, name, child) for name, child in module._modules.items()]
        watched = {id(module): module for module in (*inner, *(child for _, _, child in self._children)) if module}
        hooks = (getattr(module, name) for module in watched.values() for name in HOOKS)
        self._hooks = [found for found in hooks if not found]

    def _inner_modules(self) -> list[nn.Module] | None:
        """Return the modules that the program replaces, None if it cannot replace those that are there now."""
        if self.program is None or has_global_hooks():
            return None
        try:
            inner = [self.network.get_submodule(name) for name in self.program.inner]
        except AttributeError:
            return None
        known = getattr(self, "_inner", inner)
        if any(is_leaf(module) for module in inner) or any(a is not b for a, b in zip(known, inner, strict=True)):
            return None
        self._inner = inner
        return inner

    def _use_contiguous(self) -> None:
        """Leave the layout that only the program is known to work in."""
        if self.channels_last:
            self.channels_last = False
            set_layout_(self.network, torch.contiguous_format)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._bound = False  # the network may not be complete yet


def accelerate_(classifier: Classifier, *, compile: bool = False, autocast: bool = False) -> None:
    """Let a classifier run its network in a faster form with the same outputs, in place.

    Args:
        classifier: A private, prepared classifier.
        compile: Compile the network, see :class:`ttc.fast.compile.CompiledNetwork`.
        autocast: Compute in bfloat16 where the hardware has it.
    """
    classifier.runner = FastForward(classifier.network, compile=compile, autocast=autocast)
