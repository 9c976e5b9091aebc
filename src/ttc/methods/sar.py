"""SAR: sharpness-aware entropy minimization on reliable samples, with recovery.

Niu et al., "Towards Stable Test-Time Adaptation in Dynamic Wild World", ICLR 2023.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ttc.clustering import OptimizerFactory, Updater, softmax_entropy
from ttc.clustering.update import Gradients
from ttc.core import Adapter, Classifier, freeze_statistics, require_finite
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import below_top, copy_with_trainable_norms


class SAR(Adapter):
    """Minimizes the entropy of confident samples at the worst point near the parameters; resets when it collapses.

    Args:
        model: A prepared copy.
        updater: Takes the steps.
        entropy_margin: E0: samples with at least this entropy are left out, before and after the perturbation.
        radius: ρ, the length of the perturbation of all trainable parameters together.
        momentum: The weight of the old value in the moving average e of the loss.
        recovery_threshold: Reset when e falls below this; None never resets.
    """

    state_attributes = ("model", "updater", "average_loss")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        *,
        entropy_margin: float,
        radius: float,
        momentum: float,
        recovery_threshold: float | None,
    ) -> None:
        if radius < 0:
            raise TTCError(f"radius is the length of a perturbation and not negative, got {radius}")
        super().__init__(model)
        self.updater = updater
        self.entropy_margin, self.radius = entropy_margin, radius
        self.momentum, self.recovery_threshold = momentum, recovery_threshold
        self.average_loss: Tensor | None = None  # e

    def adapt(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) from before the update."""
        logits = require_finite(self.model(x).logits)
        entropy = softmax_entropy(logits)
        reliable = entropy.detach() < self.entropy_margin
        found = self._gradients_nearby(x, entropy, reliable) if bool(reliable.any()) else None
        if found is None:
            self.updater.skip(len(x))
            return logits
        loss, gradients = found
        old = self.average_loss
        self.average_loss = loss if old is None else self.momentum * old + (1 - self.momentum) * loss
        self.updater.add(gradients, len(x))
        if self.recovery_threshold is not None and bool(self.average_loss < self.recovery_threshold):
            self.reset()
        return logits

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits (N, K)."""
        return require_finite(self.model(x).logits)

    def _gradients_nearby(self, x: Tensor, entropy: Tensor, reliable: Tensor) -> tuple[Tensor, Gradients] | None:
        """Return loss and gradients at the perturbed parameters; None if no sample stays reliable there."""
        loss = entropy[reliable].mean()
        ascent = self.updater.gradients(loss)
        if not bool(_length(ascent).isfinite()):
            return loss.detach(), ascent  # which the updater drops, with a warning
        with self._perturb(ascent), freeze_statistics(self.model):
            nearby = softmax_entropy(require_finite(self.model(x).logits))[reliable]
            nearby = nearby[nearby.detach() < self.entropy_margin]
            if not len(nearby):
                return None
            loss = nearby.mean()
            return loss.detach(), self.updater.gradients(loss)

    @contextmanager
    def _perturb(self, ascent: Gradients) -> Iterator[None]:
        """Move the parameters by ``radius`` along the gradient inside the block."""
        pairs = [(p, g) for p, g in zip(self.updater.parameters, ascent, strict=True) if g is not None]
        before = [parameter.detach().clone() for parameter, _ in pairs]
        scale = self.radius / (_length(ascent) + 1e-12)
        with torch.no_grad():
            for parameter, gradient in pairs:
                parameter.add_(scale * gradient)
        try:
            yield
        finally:
            with torch.no_grad():
                for (parameter, _), old in zip(pairs, before, strict=True):
                    parameter.copy_(old)


def _length(gradients: Gradients) -> Tensor:
    """Return the Euclidean norm of all gradients together."""
    length: Tensor = torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm()
    return length


def sar(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    entropy_margin: float | None = None,
    radius: float = 0.05,
    momentum: float = 0.9,
    recovery_threshold: float | Literal["auto"] | None = "auto",
    trains: Callable[[str], bool] | None = None,
) -> SAR:
    """SAR: entropy minimization on confident samples at the worst point nearby, which resets itself when it collapses.

    Niu et al., "Towards Stable Test-Time Adaptation in Dynamic Wild World", ICLR 2023.

    Per batch: the gradient of the mean entropy of samples with H < E0 perturbs the parameters by a length ρ; there, the
    mean entropy L of those of them that still have H < E0 gives the gradient of the step. When the moving average of L
    falls below a threshold, everything is reset.

    Differs from the public code: a reset also clears the moving average, which the public code writes back, so that it
    keeps resetting, and the momentum of the optimizer, which survives there; a batch without reliable samples takes no
    step instead of one with the momentum alone; the threshold is an option.

    Args:
        optimizer: Makes the optimizer; SGD with momentum 0.9, and lr 1e-3 below 500 classes, else 2.5e-4.
        entropy_margin: E0 in nats; 0.4 ln K unless given.
        radius: ρ, the length of the perturbation; 0 is TENT on samples with H < E0.
        momentum: The weight of the old value in the moving average of L.
        recovery_threshold: Reset when the moving average of L, in nats, falls below this; ``"auto"`` is 0.05 below 500
            classes, else 0.2, the public constant, which is made for 1,000 classes; ``None`` never resets.
        trains: Maps the name of a normalization layer to whether its scale and shift are trained; leaves out the top of
            ResNets and ViTs unless given (:func:`ttc.nn.below_top`).
    """
    classes = model.num_classes
    prepared = copy_with_trainable_norms(model, trains=trains or below_top)
    default = partial(torch.optim.SGD, lr=1e-3 if classes < 500 else 2.5e-4, momentum=0.9)
    return SAR(
        prepared,
        Updater(prepared.parameters(), optimizer or default),
        entropy_margin=0.4 * math.log(classes) if entropy_margin is None else entropy_margin,
        radius=radius,
        momentum=momentum,
        recovery_threshold=(0.05 if classes < 500 else 0.2) if recovery_threshold == "auto" else recovery_threshold,
    )


METHOD = Method(
    name="sar",
    build=sar,
    changes=("norm affine",),
    forwards=2,
    backwards=2,
    needs=("large batches",),
    paper="Niu 2023",
)
