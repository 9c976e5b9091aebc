"""DeYO: entropy minimization on samples whose prediction depends on the shape of the object.

Lee et al., "Entropy is not Enough for Test-Time Adaptation: From the Perspective of Disentangled Factors", ICLR 2024.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ttc.clustering import OptimizerFactory, PatchShuffle, Updater, default_optimizer, softmax_entropy
from ttc.core import Adapter, Classifier, freeze_statistics, require_finite
from ttc.methods.method import Method
from ttc.nn import below_top, copy_with_trainable_norms


class DeYO(Adapter):
    """Minimizes the weighted entropy of confident samples whose label becomes less likely when patches are shuffled.

    Args:
        model: A prepared copy.
        updater: Takes the steps.
        shuffle: Destroys the shape of objects.
        entropy_threshold: τ_E: samples with at least this entropy are left out.
        entropy_margin: E0 in the weight exp(E0 - H).
        plpd_threshold: τ_P: samples whose probability falls by no more are left out; None leaves out the test.
    """

    state_attributes = ("model", "updater", "shuffle")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        shuffle: PatchShuffle,
        *,
        entropy_threshold: float,
        entropy_margin: float,
        plpd_threshold: float | None,
    ) -> None:
        super().__init__(model)
        self.updater, self.shuffle = updater, shuffle
        self.entropy_threshold, self.entropy_margin = entropy_threshold, entropy_margin
        self.plpd_threshold = plpd_threshold

    def adapt(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) from before the update."""
        logits = require_finite(self.model(x).logits)
        entropy = softmax_entropy(logits)
        rows = (entropy.detach() < self.entropy_threshold).nonzero().squeeze(1)
        weights = torch.exp(self.entropy_margin - entropy.detach()[rows])
        if self.plpd_threshold is not None and len(rows):
            difference = self._probability_difference(x[rows], logits.detach()[rows])
            kept = difference > self.plpd_threshold
            rows, weights = rows[kept], (weights + torch.exp(difference))[kept]
        if len(rows):
            self.updater((weights * entropy[rows]).mean(), len(x))
        else:
            self.updater.skip(len(x))
        self.shuffle.step += 1
        return logits

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits (N, K)."""
        return require_finite(self.model(x).logits)

    @torch.no_grad()
    def _probability_difference(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return PLPD: by how much the probability of the predicted class falls when the patches are shuffled (N,)."""
        with freeze_statistics(self.model):
            shuffled = require_finite(self.model(self.shuffle(x)).logits)
        label = logits.argmax(1, keepdim=True)
        precise = torch.promote_types(logits.dtype, torch.float32)
        before, after = (one.softmax(1, dtype=precise).gather(1, label) for one in (logits, shuffled))
        return (before - after).squeeze(1)


def deyo(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    entropy_threshold: float | None = None,
    entropy_margin: float | None = None,
    plpd_threshold: float | Literal["auto"] | None = "auto",
    patches: int = 4,
    trains: Callable[[str], bool] | None = None,
    seed: int = 0,
) -> DeYO:
    """DeYO: entropy minimization on confident samples whose prediction depends on the object's shape.

    Lee et al., "Entropy is not Enough for Test-Time Adaptation: From the Perspective of Disentangled Factors", ICLR
    2024 (Destroy Your Object).

    Per batch: of the samples with H < τ_E a copy with shuffled patches is predicted, with batch statistics of its own
    and no gradient; PLPD is by how much the probability of the predicted class falls. Those with PLPD > τ_P learn, with
    weight exp(E0 - H) + exp(PLPD).

    Differs from the public code: ``reset()`` works, there it has no state to restore; shuffling replays from a seed;
    images that are not square keep their aspect ratio. Occlusion and pixel shuffling are left out.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        entropy_threshold: τ_E in nats; 0.5 ln K unless given.
        entropy_margin: E0 in nats, in the weight of a sample; 0.4 ln K unless given.
        plpd_threshold: τ_P; ``"auto"`` is 0.2 below 500 classes, else 0.3; ``None`` leaves out the test of PLPD, its
            weight and its pass.
        patches: Patches per side of an image.
        trains: Maps the name of a normalization layer to whether its scale and shift are trained; leaves out the top of
            ResNets and ViTs unless given (:func:`ttc.nn.below_top`).
        seed: The seed of the shuffling.
    """
    classes = model.num_classes
    prepared = copy_with_trainable_norms(model, trains=trains or below_top)
    return DeYO(
        prepared,
        Updater(prepared.parameters(), optimizer or default_optimizer(classes)),
        PatchShuffle(grid=patches, seed=seed),
        entropy_threshold=0.5 * math.log(classes) if entropy_threshold is None else entropy_threshold,
        entropy_margin=0.4 * math.log(classes) if entropy_margin is None else entropy_margin,
        plpd_threshold=(0.2 if classes < 500 else 0.3) if plpd_threshold == "auto" else plpd_threshold,
    )


METHOD = Method(
    name="deyo",
    build=deyo,
    changes=("norm affine",),
    forwards=(1, 2),
    backwards=1,
    needs=("large batches",),
    paper="Lee 2024",
)
