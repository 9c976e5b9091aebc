"""An adapter as an ``nn.Module``, for code that takes nothing else."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.core.adapter import Adapter


class AdapterModule(nn.Module):
    """Adapts in its forward pass: ``nn.Sequential(adapter.as_module(), nn.Softmax(1))``.

    - ``train()`` and ``eval()`` make no difference: adaptation happens at test time, which is evaluation. Set
      ``module.adapting = False`` to predict without adapting.
    - ``state_dict()`` contains the network's tensors, and everything else that changes as extra state;
      ``load_state_dict`` restores all of it.
    - ``to(device)`` moves the adapter. The dtype is that of the model: convert it before ``ttc.adapt``.
    - Outputs are detached: layers after it can be trained, layers before it cannot.

    Args:
        adapter: The adapter, which stays usable on its own.
    """

    def __init__(self, adapter: "Adapter") -> None:
        super().__init__()
        self.adapter = adapter
        self.network = adapter.model.network
        self.adapting = True

    def forward(self, images: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            raise TTCError("an adapter changes as it predicts and cannot be traced; export a module: adapter.export()")
        return self.adapter(images) if self.adapting else self.adapter.predict(images)

    def train(self, mode: bool = True) -> "AdapterModule":
        """Remember the mode; the network stays in evaluation mode."""
        self.training = mode
        return self

    def get_extra_state(self) -> Any:
        """Return everything that changes, for ``state_dict``."""
        return self.adapter.state_dict()

    def set_extra_state(self, state: Any) -> None:
        """Restore everything that changes, for ``load_state_dict``."""
        self.adapter.load_state_dict(state)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "AdapterModule":
        weight = next(self.network.parameters())
        moved = fn(torch.empty(0, dtype=weight.dtype, device=weight.device))
        if moved.dtype != weight.dtype:
            raise TTCError(
                f"the adapter computes in {weight.dtype}; convert the model before ttc.adapt, not afterwards"
            )
        if moved.device != weight.device:
            self.adapter.to(moved.device)
        return self
