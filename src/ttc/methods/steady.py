"""STEADY: one clustering method for every batch size and order of a stream, without options to set."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from ttc.clustering import (
    Assignment,
    ClassPrior,
    ConfidenceWeights,
    OptimizerFactory,
    Updater,
    WindowedDiversity,
    correct_logits,
    horizontal_flip,
    softmax_entropy,
)
from ttc.core import Classifier, require_finite
from ttc.core.cautious import CautiousAdapter
from ttc.core.outlier_check import OutlierCheck
from ttc.core.statistics import norm_layers, repeat_batch
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import (
    BatchStatisticsNorm,
    Equalization,
    ParkedDomain,
    PooledNorm,
    Sharpness,
    copy_with_trainable_norms,
    discount_pools_,
    domain_tensors,
    flatten_domain,
    pooled_layers,
    pools_have_changed,
    restart_pools_,
    restore_pools,
    set_domain_,
    set_pool_tolerance_,
)

SAMPLES_PER_STEP = 100
DOUBT = 0.8  # the flip counts where the probabilities of the two best classes are nearer than that
FEWEST_TO_RETURN = 16  # images in a batch that can show that a domain has come back
WARM_UP = 2000  # images of a domain that are all learned from, whatever the budget
IMAGES_PER_CLASS = 10  # over how many images per class predictions are balanced
LEARNING_RATE = 1e-2  # of scales around 1; smaller ones take smaller steps
SOURCE_COUNT = 16.0  # images that the source statistics count for
LAYERS = 20  # with more normalization layers, the noise of their statistics adds up
TOLERANCE = 6.0  # how far recent statistics may lie from the pool: shuffled streams of one domain stay below 2
CORRELATED_TOLERANCE = 28.0  # the same where neighbouring images share classes, which moves statistics too
AMOUNT_RATE = 0.1  # the learning rate of the sharpness and the equalization of the images
POOL_PER_SHARPNESS = 3.0  # by which fraction the pools count less after a step of 1: they are of other images
CORRELATED_CAUTION = 0.8  # the part of the learning rate that is left out there


class Steady(CautiousAdapter):
    """Assigns labels with pooled statistics and an estimated class prior, and learns from them in steps of 100 images.

    Outliers and blank images leave no trace (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        model: A prepared copy.
        updater: Takes the steps.
        doubt: Average the prediction with that of the flip where the probabilities of the two best classes differ by
            less; 0 never flips, infinity flips every image.
        prior: Estimates the class prior; None takes the uniform one.
        weigh: The weight of each sample.
        balance: The loss that draws the average prediction towards equally frequent classes; None leaves it out.
        pull: The fraction by which parameters return to those of the source after each step.
        learn_every: Learn from every so many batches once 2,000 images of a domain are learned from; 0 never learns.
    """

    state_attributes = ("model", "updater", "prior", "weigh", "balance", "parked", "check", "batches", "domain_images")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        *,
        doubt: float,
        prior: ClassPrior | None,
        weigh: ConfidenceWeights | None,
        balance: WindowedDiversity | None,
        pull: float,
        learn_every: int,
    ) -> None:
        super().__init__(model)
        self.updater, self.doubt = updater, doubt
        self.prior, self.weigh, self.balance = prior, weigh, balance
        self.pull, self.learn_every = pull, learn_every
        self.batches = 0
        self.parked, self.check = ParkedDomain(), OutlierCheck()
        self.domain_images = 0  # of the present domain

    def learn(self, x: Tensor) -> Tensor:
        """Return the corrected logits (N, K) from before the update."""
        due = self.domain_images < WARM_UP or (self.batches + 1) % max(1, self.learn_every) == 0
        learns = due and self.learn_every > 0
        with torch.set_grad_enabled(learns):
            before = domain_tensors(self.model)
            logits = self._logits(x)
            if pools_have_changed(self.model):
                logits = self._change_domain(x, before)
        self.batches += 1
        self.domain_images += len(x)
        prior = self._prior(logits, update=True)
        if learns:
            self._step(self._loss(logits), len(x))
        if self.prior is not None:  # ordered classes move statistics too, without a new domain
            correlated = self.prior.correlation
            set_pool_tolerance_(self.model, TOLERANCE + (CORRELATED_TOLERANCE - TOLERANCE) * correlated)
        return correct_logits(logits, prior)

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that a parked domain is one of this model."""
        values, images = state["parked"]["values"], state["parked"]["images"]
        size = sum(tensor.numel() for tensor in domain_tensors(self.model))
        fits = isinstance(values, Tensor) and values.shape == (size,) and values.dtype == torch.float64
        if images < 0 or not (values is None or fits):
            raise ValueError("a parked domain is of another model")

    def infer(self, x: Tensor) -> Tensor:
        """Return the corrected logits (N, K)."""
        with restore_pools(self.model):
            logits = self._logits(x)
        return correct_logits(logits, self._prior(logits, update=False))

    def _logits(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of the images, averaged with those of their flips where two classes are close.

        The loss is that of the average; its gradient passes through the images alone, which costs half as much and
        teaches as much. Flips are normalized as the images were.
        """
        logits = require_finite(self.model(x).logits)
        best = logits.detach().softmax(1).topk(2).values  # (N, 2)
        doubtful = best[:, 0] - best[:, 1] < self.doubt
        if not doubtful.any():
            return logits
        with torch.no_grad(), repeat_batch(self.model):
            flipped = require_finite(self.model(horizontal_flip(x[doubtful])).logits)
        change = torch.zeros_like(logits)
        change[doubtful] = (flipped - logits.detach()[doubtful]) / 2
        return logits + change

    def _prior(self, logits: Tensor, *, update: bool) -> Tensor:
        if self.prior is not None:
            return self.prior(logits, update=update)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return torch.full_like(logits, 1 / logits.shape[1], dtype=wide)

    def _loss(self, logits: Tensor) -> Tensor:
        """Return the weighted entropy plus the balance, scaled to a step's images.

        Both are of the prediction without the prior: learning from corrected ones amplifies the prior.
        """
        assignment = Assignment(logits, softmax_entropy(logits), ())
        weights = 1.0 if self.weigh is None else self.weigh(assignment)
        losses = weights * assignment.entropy
        if self.balance is not None:
            losses = losses + self.balance(assignment)
        return losses.sum() / max(SAMPLES_PER_STEP, len(losses))

    def _step(self, loss: Tensor, images: int) -> None:
        """Learn from a batch; after a step, pull parameters back, and let pools follow a change of the sharpness."""
        self._set_learning_rate()
        sharpness = self.model.input_filter
        before = sharpness.amount.detach().clone() if isinstance(sharpness, Sharpness) else None
        if not self.updater(loss, images):
            return
        self._pull_to_source(self.pull)
        for step in self.model.modules():
            if isinstance(step, Sharpness | Equalization):
                step.limit_()
        if isinstance(sharpness, Sharpness) and before is not None:
            moved = (sharpness.amount.detach() - before).abs()
            discount_pools_(self.model, (POOL_PER_SHARPNESS * moved).clamp(max=0.9))

    def _set_learning_rate(self) -> None:
        """Learn more slowly where neighbouring images share classes: such batches do not show what the model lacks."""
        factor = 1.0 if self.prior is None else 1 - CORRELATED_CAUTION * self.prior.correlation
        for group, rate in zip(self.updater.optimizer.param_groups, self.updater.learning_rates, strict=True):
            group["lr"] = rate * factor

    @torch.no_grad()
    def _pull_to_source(self, fraction: float) -> None:
        source = self.initial_tensors
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                parameter.lerp_(source[name].to(parameter), fraction)

    def _change_domain(self, x: Tensor, before: Sequence[Tensor]) -> Tensor:
        """Leave the domain, whose tensors were ``before``, and return the logits of the batch that belongs to another.

        That is the domain before, if its pools explain the batch; else one to be learned from the source on.
        """
        left, returned = flatten_domain(before), None
        if self.parked.values is not None and len(x) >= FEWEST_TO_RETURN:
            set_domain_(self.model, self.parked.values)
            logits = self._logits(x)
            if not pools_have_changed(self.model):
                returned = logits
        images = 0 if returned is None else self.parked.images
        self.parked.park(left, self.domain_images)
        self.domain_images = images
        self.updater.reset()
        if returned is not None:
            return returned
        restart_pools_(self.model)
        self._pull_to_source(1.0)
        return self._logits(x)


def steady(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    learn_every: int = 1,
    flip: bool = True,
    sharpness: bool = True,
    equalize: bool = True,
    pool: bool = True,
    class_prior: bool = True,
    weighting: bool = True,
    balance: bool = True,
    pull: float = 0.003,
) -> Steady:
    """STEADY: clustering with pooled statistics, balanced labels and a class prior that follows the stream.

    The A-step predicts the image with statistics pooled over the stream (:class:`ttc.nn.PooledNorm`), averages the
    prediction with that of the flip where the two best classes are closer than 0.8, and multiplies it by a class prior
    estimated from predictions near in time (:class:`ttc.clustering.ClassPrior`); in a shuffled stream that prior is
    uniform. The U-step minimizes, through the image alone, the entropy of that average, weighted by exp(H̄ - H), plus
    Σ p log(K p̄), which draws the prediction averaged over 100 images (10 per class, if that is more) towards equally
    frequent classes. What learns are scale and shift of the normalization, one number by which images are smoothed or
    sharpened (:class:`ttc.nn.Sharpness`), and one per layer of the first third, by which the statistics of single
    images are brought together (:class:`ttc.nn.Equalization`), as mixed domains need. One step per 100 images,
    accumulated over smaller batches; after it, parameters return to those of the source by ``pull``. When statistics
    leave what the pools explain, pools begin anew, half with the source statistics and half with recent ones,
    parameters return to the source, and the batch that showed it is predicted again; where the pools of the domain
    before explain it (16 images or more), the stream has returned there, and so do pools and parameters. Where
    neighbouring images share classes, which the prior finds out, the learning rate is a fifth and pools tolerate more.

    No option has to be set: they are for ablations and for a smaller cost. On networks without BatchNorm there are no
    statistics to pool, and everything else is the same. Not a published method.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-2 times the mean size |γ| of the scales of the normalization,
            if that is below one. The learning rate of the sharpness and of the equalization is 0.1.
        learn_every: Learn from every so many batches, once 2,000 images of a domain are learned from: with 4 a long
            stream costs less than with TENT; 0 never learns.
        flip: Whether to predict the flip of doubtful images too.
        sharpness: Whether to learn by how much to smooth or sharpen the images.
        equalize: Whether to bring the statistics of single images together in the first third of the pooled layers; it
            costs a tenth of the time.
        pool: Whether to pool statistics over the stream; else layers use those of the batch.
        class_prior: Whether to estimate the class prior; else it is uniform.
        weighting: Whether to weight samples by confidence.
        balance: Whether to draw the average prediction towards equally frequent classes.
        pull: The fraction by which parameters return to those of the source after each step, in [0, 1].
    """
    if learn_every < 0:
        raise TTCError(f"learn_every is a number of batches, or 0 for never, got {learn_every}")
    if not 0 <= pull <= 1:
        raise TTCError(f"pull is a fraction in [0, 1], got {pull}")
    classes = model.num_classes
    depth = max(1.0, sum(1 for _ in norm_layers(model)) / LAYERS)
    pooled = partial(PooledNorm, tolerance=TOLERANCE, source_count=SOURCE_COUNT * depth)
    doubt = DOUBT if pool else math.inf  # the statistics of doubtful images alone would be biased
    prepared = copy_with_trainable_norms(model, pooled if pool else BatchStatisticsNorm)
    if equalize:
        _equalize_first_layers_(prepared)
    if sharpness:
        prepared.input_filter = Sharpness().to(next(prepared.parameters()))
    make = optimizer or partial(torch.optim.Adam, lr=LEARNING_RATE * min(1.0, _mean_scale(prepared)))
    return Steady(
        prepared,
        Updater(
            prepared.parameters(),
            partial(_optimizer, make),
            accumulate=None,
            samples_per_step=SAMPLES_PER_STEP,
            count="samples",
        ),
        doubt=doubt if flip else 0.0,
        prior=ClassPrior(classes) if class_prior else None,
        weigh=ConfidenceWeights(SAMPLES_PER_STEP) if weighting else None,
        balance=WindowedDiversity(max(SAMPLES_PER_STEP, IMAGES_PER_CLASS * classes)) if balance else None,
        pull=pull,
        learn_every=learn_every,
    )


def _equalize_first_layers_(model: Classifier) -> None:
    """Equalize images in the first third of the pooled layers: late layers see what images show."""
    layers = pooled_layers(model)
    for layer in layers[: math.ceil(len(layers) / 3)]:
        layer.equalization = Equalization().to(layer.mean)


def _mean_scale(model: Classifier) -> float:
    """Return the mean size of the scales of the normalization: a step of Adam is small only beside what it changes."""
    scales = [layer.weight for _, layer in norm_layers(model) if isinstance(layer.weight, Tensor)]
    return float(torch.cat([scale.detach().abs().flatten() for scale in scales]).mean())


def _optimizer(make: OptimizerFactory, parameters: Sequence[Parameter]) -> Optimizer:
    """Make the optimizer of the layers, with a learning rate of its own for single numbers, the amounts."""
    optimizer = make([parameter for parameter in parameters if parameter.ndim])
    amounts = [parameter for parameter in parameters if not parameter.ndim]
    if amounts:
        optimizer.add_param_group({"params": amounts, "lr": AMOUNT_RATE})
    return optimizer


METHOD = Method(
    name="steady",
    build=steady,
    changes=("norm affine", "norm statistics", "input sharpness", "image statistics"),
    forwards=(1, 2),
    backwards=(0, 1),
    needs=("source statistics",),
    paper="this package",
    memory="pooled statistics, class counts",
)
