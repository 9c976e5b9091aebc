"""Entropy-based test-time adaptation as clustering: assign labels to a batch, then update the model with them."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ttc.clustering.assignment import Assignment, Fuse, assign, first_view
from ttc.clustering.losses import Loss, entropy
from ttc.clustering.penalty import Penalty
from ttc.clustering.selection import SelectAll, Selector
from ttc.clustering.update import OptimizerFactory, Reduce, Updater, selected_mean
from ttc.clustering.views import RandomView, View, horizontal_flip, identity, vertical_flip
from ttc.core.adapter import Adapter
from ttc.core.classifier import Classifier
from ttc.core.exported import ExportParts
from ttc.core.part import share_parts_
from ttc.core.processes import Processes
from ttc.errors import TTCError
from ttc.fast.selective_backward import cache_activations, make_selective_, reuse_activations

PER_IMAGE = (identity, horizontal_flip, vertical_flip)  # views of an image that depend on nothing else


class Step(NamedTuple):
    """What one cycle did, for an observer: assignment, weights S(x) (N,), loss (None if nothing was selected)."""

    assignment: Assignment
    weights: Tensor
    loss: Tensor | None


class ClusteringAdapter(Adapter):
    """Algorithm 1 of the paper in parts; with the default parts it is TENT.

    Args:
        model: A prepared copy (:func:`ttc.nn.copy_with_trainable_norms`).
        optimizer: Makes the optimizer of the trainable parameters.
        views: The views of a batch, the first being the plain one.
        fuse: Fuses the logits of the views into those that assign the labels.
        losses: Losses of the selected samples, summed.
        unselected: Losses of all samples, whatever the selection.
        select: The weight of each sample; every sample with weight one unless given.
        reduce: Reduces losses and weights to the scalar to minimize.
        output: Fuses the logits of the views into the output, from before the update; ``fuse`` unless given.
        together: Whether the views share one forward pass and its batch statistics.
        propagate: ``"all"``, or ``"selected"`` to send only the selected samples back, with the statistics of the batch
            held constant: less work, another gradient.
        update: Makes the :class:`Updater`, such as ``partial(Updater, accumulate=2)``.
        penalty: Maps the model to a scalar that is added to the loss of every batch with a selected sample.
    """

    state_attributes: ClassVar[tuple[str, ...]] = (
        "model",
        "updater",
        "select",
        "views",
        "losses",
        "unselected",
        "penalty",
    )

    def __init__(
        self,
        model: Classifier,
        optimizer: OptimizerFactory,
        *,
        views: Sequence[View] = (identity,),
        fuse: Fuse = first_view,
        losses: Sequence[Loss] = (entropy,),
        unselected: Sequence[Loss] = (),
        select: Selector | None = None,
        reduce: Reduce = selected_mean,
        output: Fuse | None = None,
        together: bool = False,
        propagate: str = "all",
        update: Callable[[Iterable[Parameter], OptimizerFactory], Updater] = Updater,
        penalty: Penalty | None = None,
    ) -> None:
        if propagate not in {"all", "selected"}:
            raise TTCError(f"propagate is 'all' or 'selected', got '{propagate}'")
        if propagate == "selected" and (unselected or together):
            raise TTCError("propagate='selected' learns from the selected samples alone, with one pass per view")
        self.propagate = propagate
        if propagate == "selected":
            make_selective_(model.network)
        super().__init__(model)
        self.views = tuple(copy.deepcopy(view) for view in views)  # random views count their steps
        self.fuse, self.together, self.output = fuse, together, output
        self.losses, self.unselected, self.reduce = tuple(losses), tuple(unselected), reduce
        self.select = SelectAll() if select is None else select
        self.updater = update(model.parameters(), optimizer)
        self.penalty = penalty
        self.observer: Callable[[Step], None] | None = None

    def adapt(self, x: Tensor) -> Tensor:
        """Run one cycle: the A-step labels the batch, the U-step learns from the labels."""
        if self.propagate == "selected":
            assignment, weights, loss = self._forward_selected(x)
        else:
            assignment = self._assign(x)
            weights = self.select(assignment)
            selected = self.select.never_empty or bool(weights.any())
            loss = self._loss(assignment, weights) if selected else None
        size = len(assignment.logits)  # of the whole batch, of which x may be a shard
        if loss is not None:
            self.updater(loss, size)
        else:
            self.updater.skip(size)
        self._advance_views()
        if self.observer is not None:
            self.observer(Step(assignment, weights, loss))
        return self._output(assignment)

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that averages of a selector are scalars or have one value per class."""
        averages = state["select"].values() if isinstance(state["select"], dict) else ()
        if any(isinstance(one, Tensor) and one.shape not in {(), (self.model.num_classes,)} for one in averages):
            raise ValueError("an average of the selector has another shape than one value per class")

    def infer(self, x: Tensor) -> Tensor:
        """Run the A-step alone."""
        return self._output(self._assign(x))

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: selection, losses and steps follow from the predictions of the whole batch.

        Raises:
            TTCError: If only selected samples go backward, or a penalty on the parameters is added.
        """
        if self.propagate == "selected" or self.penalty is not None:
            what = "propagate='selected'" if self.penalty is None else "a penalty on the parameters"
            raise TTCError(f"{what} cannot share a stream between processes: run it in one, or leave that out")
        share_parts_(self, processes)

    def export_parts(self) -> ExportParts:
        """Return the views and what fuses their logits into the output."""
        fuse = self.output or self.fuse
        return ExportParts(views=self.views[:1] if fuse is first_view else self.views, fuse=fuse)

    @property
    def requires_batch_statistics(self) -> bool:
        """Whether the backward pass relies on the statistics of the batch, so that small batches are out of reach."""
        return self.propagate == "selected"

    def _assign(self, x: Tensor) -> Assignment:
        views = [self._of_whole_batch(view) for view in self.views] if self.processes.active else self.views
        return assign(self.model, x, views, self.fuse, together=self.together)

    def _of_whole_batch(self, view: View) -> View:
        """Return a view of a shard: what may draw for the whole batch, or mix its images, is computed on all of it."""
        return view if view in PER_IMAGE else lambda shard: self.processes.apply_to_whole(view, shard)

    def _output(self, assignment: Assignment) -> Tensor:
        return self.output([view.logits for view in assignment.views]) if self.output else assignment.logits

    def _advance_views(self) -> None:
        for view in self.views:
            if isinstance(view, RandomView):
                view.step += 1

    def _forward_selected(self, x: Tensor) -> tuple[Assignment, Tensor, Tensor | None]:
        """Run the A-step without gradients, then compute the loss of the selected samples from cached activations."""
        with cache_activations(self.model.network), torch.no_grad():
            assignment = assign(self.model, x, self.views, self.fuse)
        weights = self.select(assignment)
        rows = weights.nonzero().squeeze(1)
        with reuse_activations(self.model.network, rows):
            if not len(rows):
                return assignment, weights, None
            selected = assign(self.model, x, [_rows_of(view, rows) for view in self.views], self.fuse)
        return assignment, weights, self._loss(selected, weights[rows])

    def _loss(self, assignment: Assignment, weights: Tensor) -> Tensor:
        loss = self.reduce(_total(self.losses, assignment), weights)
        loss = loss if self.penalty is None else loss + self.penalty(self.model)
        return loss + _total(self.unselected, assignment).mean() if self.unselected else loss


def _rows_of(view: View, rows: Tensor) -> View:
    return lambda x: view(x).index_select(0, rows)


def _total(losses: Sequence[Loss], assignment: Assignment) -> Tensor:
    total = losses[0](assignment)
    for loss in losses[1:]:
        total = total + loss(assignment)
    return total
