"""The U-step: the mean loss of the selected samples, and the gradient steps it leads to."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from ttc.core.part import Part, SmallBatches, share_parts_
from ttc.core.processes import Processes
from ttc.errors import TTCError

OptimizerFactory = Callable[[list[Parameter]], Optimizer]
Reduce = Callable[[Tensor, Tensor], Tensor]
"""Maps losses (N,) and weights (N,) to the scalar to minimize."""
Gradients = Sequence[Tensor | None]
"""The gradient of each parameter, None where there is none."""


def selected_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Divide the weighted sum by the number of selected samples, as in the paper's Algorithm 1.

    >>> selected_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])).item()
    1.5
    """
    return (losses * weights).sum() / weights.count_nonzero()


def batch_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Divide the weighted sum by the size of the batch, as in the paper's equation.

    >>> batch_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])).item()
    1.0
    """
    return (losses * weights).sum() / len(losses)


def default_optimizer(num_classes: int) -> OptimizerFactory:
    """Return the paper's optimizer: Adam, lr 1e-3, on CIFAR; SGD, lr 2.5e-4, momentum 0.9, from 500 classes on."""
    if num_classes < 500:
        return partial(torch.optim.Adam, lr=1e-3)
    return partial(torch.optim.SGD, lr=2.5e-4, momentum=0.9)


def batches_for(samples: int, batch_size: int) -> int:
    """Return how many batches contain about ``samples`` samples: the paper's Q = 200 / N, rounded, at least one.

    >>> [batches_for(200, n) for n in (1, 64, 100, 128, 150, 200, 256)]
    [200, 3, 2, 2, 1, 1, 1]
    """
    return max(1, int(samples / batch_size + 0.5))


class Updater(Part):
    """Accumulates the gradients of Q batches, then takes one optimizer step.

    Accumulated gradients stay across calls; :meth:`flush` steps with those there are.

    Args:
        parameters: What to update; those that do not require gradients are left out.
        optimizer: Makes the optimizer of the parameters, such as ``partial(torch.optim.Adam, lr=1e-3)``.
        accumulate: Q, the number of batches per step; ``None`` derives it from ``samples_per_step``.
        samples_per_step: With ``accumulate=None``, the samples per step.
        count: With ``accumulate=None``: ``"batches"`` counts whole batches of the size of the first one (the paper's
            Q = 200 / N), ``"samples"`` counts the samples themselves.
        reduction: ``"sum"`` or ``"mean"`` of the gradients over the accumulated batches.
        counter_start: Where the batch counter starts; 0 steps on the very first batch.
        reference_batch: Scales the learning rate with the size of the batch, lr · N / ``reference_batch``.
    """

    state_attributes = (
        *("optimizer", "accumulated", "accumulated_batches", "accumulated_samples"),
        *("batches", "first_batch_size", "dropped_batches"),
    )

    def __init__(
        self,
        parameters: Iterable[Parameter],
        optimizer: OptimizerFactory,
        *,
        accumulate: int | None = 1,
        samples_per_step: int = 200,
        count: str = "batches",
        reduction: str = "sum",
        counter_start: int = 1,
        reference_batch: float | None = None,
    ) -> None:
        for name, value in {"accumulate": accumulate, "samples_per_step": samples_per_step}.items():
            if value is not None and value < 1:
                raise TTCError(f"{name} is a positive number, got {value}")
        if count not in {"batches", "samples"}:
            raise TTCError(f"count is 'batches' or 'samples', got '{count}'")
        if reduction not in {"sum", "mean"}:
            raise TTCError(f"reduction is 'sum' or 'mean', got '{reduction}'")
        if counter_start not in {0, 1}:
            raise TTCError(f"counter_start is 1 or 0, got {counter_start}")
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.make_optimizer = optimizer
        self.accumulate, self.samples_per_step = accumulate, samples_per_step
        self.count, self.reduction, self.counter_start = count, reduction, counter_start
        self.reference_batch = reference_batch
        self.reset()

    def reset(self) -> None:
        """Discard accumulated gradients, counters and the optimizer's moments."""
        self.optimizer = self._made_optimizer()
        self.learning_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.accumulated: list[Tensor | None] = [None] * len(self.parameters)
        self.accumulated_batches = self.accumulated_samples = 0
        self.dropped_batches = 0
        self.batches = self.counter_start - 1  # the paper's counter
        self.first_batch_size: int | None = None  # which Q is derived from

    def __call__(self, loss: Tensor, batch_size: int) -> bool:
        """Accumulate the gradients of ``loss``; return whether a step was taken."""
        return self.add(self.gradients(loss), batch_size)

    def gradients(self, loss: Tensor) -> Gradients:
        """Return the gradient of ``loss`` with respect to each parameter, None where there is none."""
        return self.processes.sum(torch.autograd.grad(loss, self.parameters, allow_unused=True))

    def add(self, gradients: Gradients, batch_size: int) -> bool:
        """Accumulate gradients; return whether a step was taken."""
        if not _finite(gradients):
            self.dropped_batches += 1
            self.skip(batch_size)
            warnings.warn("the gradient of a batch is not finite: nothing was learned from that batch", stacklevel=2)
            return False
        self.accumulated = [_sum(old, new) for old, new in zip(self.accumulated, gradients, strict=True)]
        self.accumulated_batches += 1
        self.accumulated_samples += batch_size
        self.batches += 1
        self.first_batch_size = self.first_batch_size or batch_size
        if not self._due():
            return False
        self.flush()
        return True

    def skip(self, batch_size: int) -> None:
        """Count a batch without a gradient: when samples are counted, it brings the next step closer."""
        if self.accumulate is None and self.count == "samples":
            self.accumulated_samples += batch_size
            if self._due():
                self.flush()

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that accumulated gradients fit the parameters, and that counters count."""
        for parameter, gradient in zip(self.parameters, state["accumulated"], strict=True):
            if gradient is not None and not (isinstance(gradient, Tensor) and gradient.shape == parameter.shape):
                raise ValueError("accumulated gradients have other shapes than the parameters")
        for name in ("accumulated_batches", "accumulated_samples", "dropped_batches", "first_batch_size"):
            if state[name] is not None and not (type(state[name]) is int and state[name] >= 0):
                raise ValueError(f"{name} is a count, got {str(state[name])[:40]}")

    def use_small_batches_(self, settings: SmallBatches) -> None:
        """Step per number of samples, with the mean gradient: the step size is then the same at any batch size.

        A learning rate that already follows the batch (``reference_batch``) is left as it is.
        """
        if self.reference_batch is None:
            self.accumulate, self.samples_per_step = None, settings.samples_per_step
            self.count, self.reduction = "samples", "mean"
            self.reset()

    def share_stream_(self, processes: Processes) -> None:
        """Sum gradients over the processes, each of which has those of its shard."""
        share_parts_(self, processes)

    def flush(self) -> None:
        """Take a step with the gradients accumulated so far, if any."""
        if not self.accumulated_batches:
            self.accumulated_samples = 0
            return
        for parameter, gradient in zip(self.parameters, self.accumulated, strict=True):
            scale = 1 / self.accumulated_batches if self.reduction == "mean" else 1
            parameter.grad = None if gradient is None else gradient * scale if scale != 1 else gradient
        if self.reference_batch is not None:
            factor = self.accumulated_samples / self.accumulated_batches / self.reference_batch
            for group, rate in zip(self.optimizer.param_groups, self.learning_rates, strict=True):
                group["lr"] = rate * factor
        undone = not self._step()
        self.optimizer.zero_grad(set_to_none=True)
        self.accumulated = [None] * len(self.parameters)
        self.dropped_batches += self.accumulated_batches if undone else 0
        self.accumulated_batches = self.accumulated_samples = 0
        if undone:
            warnings.warn(
                f"a step of the optimizer in {self.parameters[0].dtype} was not finite and was undone; "
                "convert the model with .float(), or choose an optimizer with a smaller step",
                stacklevel=3,
            )

    def _step(self) -> bool:
        """Take the optimizer's step; undo one that leaves parameters or moments not finite, and return False."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        self.optimizer.step()
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        if _finite([*self.parameters, *(moment for moment in moments if isinstance(moment, Tensor))]):
            return True
        with torch.no_grad():
            for parameter, old in zip(self.parameters, before, strict=True):
                parameter.copy_(old)
        self.optimizer = self.make_optimizer(self.parameters)  # the moments may be what is not finite
        return False

    def _made_optimizer(self) -> Optimizer:
        expected = "optimizer must make an optimizer of parameters, such as partial(torch.optim.Adam, lr=1e-3)"
        try:
            optimizer = self.make_optimizer(self.parameters)
        except (TypeError, ValueError) as error:
            raise TTCError(f"{expected}; it failed: {error}") from error
        if not isinstance(optimizer, Optimizer):
            raise TTCError(f"{expected}; it returned {type(optimizer).__name__}")
        return optimizer

    def _due(self) -> bool:
        if self.accumulate is None and self.count == "samples":
            return self.accumulated_samples >= self.samples_per_step
        assert self.first_batch_size is not None
        every = self.accumulate or batches_for(self.samples_per_step, self.first_batch_size)
        return self.batches % every == 0


def _finite(gradients: Iterable[Tensor | None]) -> bool:
    norms = torch._foreach_norm([gradient for gradient in gradients if gradient is not None])
    return bool(torch.stack(norms).isfinite().all()) if norms else True


def _sum(old: Tensor | None, new: Tensor | None) -> Tensor | None:
    return new if old is None else old if new is None else old + new
