"""The tensors adaptation may change, kept to be restored."""

import torch
from torch import Tensor, nn


class Snapshot:
    """Copies of a model's trainable parameters and buffers at one moment.

    >>> layer = nn.Linear(2, 2)
    >>> before = Snapshot(layer)
    >>> _ = layer.weight.data.zero_()
    >>> before.restore(layer)
    >>> bool(layer.weight.any())
    True
    """

    def __init__(self, model: nn.Module) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in changeable(model).items()}

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Write the kept values back into ``model``, in place, so that optimizers keep their parameters."""
        for name, tensor in changeable(model).items():
            tensor.copy_(self.tensors[name])


def changeable(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters and the buffers of a model, by name."""
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {**trainable, **dict(model.named_buffers())}
