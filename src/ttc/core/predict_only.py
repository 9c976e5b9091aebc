"""The adapter of methods that prepare the model and learn nothing."""

import torch
from torch import Tensor

from ttc.core.adapter import Adapter, require_finite
from ttc.core.part import share_parts_
from ttc.core.processes import Processes


class PredictOnly(Adapter):
    """Predicts with its prepared model as it is; nothing changes.

    Args:
        model: The prepared copy, such as one that normalizes with the statistics of the batch.
    """

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        return require_finite(self.model(x).logits)

    def infer(self, x: Tensor) -> Tensor:
        """Return the model's logits: there is nothing to learn."""
        return self.adapt(x)

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: the network is all there is."""
        share_parts_(self, processes)
