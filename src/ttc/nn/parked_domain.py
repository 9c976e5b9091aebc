"""The domain before the last change of a stream, to return to."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ttc.core.part import Part
from ttc.nn.pooling import POOL, pooled_layers


class ParkedDomain(Part):
    """What a model knew of the domain it left: trainable parameters and pools, or nothing yet.

    Attributes:
        values: What :func:`flatten_domain` returned.
        images: How many images of the domain were seen.
    """

    state_attributes = ("values", "images")

    def __init__(self) -> None:
        self.values: Tensor | None = None
        self.images = 0

    def park(self, values: Tensor, images: int) -> None:
        """Remember a domain in place of the one before."""
        self.values, self.images = values, images


def domain_tensors(model: nn.Module) -> list[Tensor]:
    """Return the trainable parameters and the pools of all :class:`PooledNorm` of a model, themselves.

    A forward pass replaces pools and writes into none, so these stay as they were before it.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [*trained, *(getattr(layer, name) for layer in pooled_layers(model) for name in POOL)]


def flatten_domain(tensors: Sequence[Tensor]) -> Tensor:
    """Copy what :func:`domain_tensors` returned into one vector."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors])


@torch.no_grad()
def set_domain_(model: nn.Module, values: Tensor) -> None:
    """Restore what :func:`flatten_domain` returned for a model of the same form, in place."""
    tensors = domain_tensors(model)
    for tensor, part in zip(tensors, values.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
