"""Entropy-based test-time adaptation as clustering: assign labels to a batch, then update the model with them."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from ttc.clustering.assignment import Assignment, Fuse, assign, first_view
from ttc.clustering.losses import Loss, entropy
from ttc.clustering.selection import Everything, Selector
from ttc.clustering.update import OptimizerFactory, Reduce, Updater, selected_mean
from ttc.clustering.views import RandomView, View, identity
from ttc.core.adapter import Adapter
from ttc.core.classifier import Classifier
from ttc.core.remembering import kept, remembering, taken_up
from ttc.errors import TTCError


class Step(NamedTuple):
    """What one cycle did, for an observer: labels, weights S(x) (N,), and the loss, None when nothing was selected."""

    assignment: Assignment
    weights: Tensor
    loss: Tensor | None


class ClusteringAdapter(Adapter):
    """Algorithm 1 of the paper in parts; with the default parts it is TENT.

    ``model`` is a prepared copy (:func:`ttc.core.norm_tunable`), ``optimizer`` a factory. The answer is made of the
    predictions before the update: the fused logits, or ``answer`` of the views' logits. Every sample takes part in the
    ``unselected`` losses, whatever the selection. ``update`` makes the :class:`Updater`, such as
    ``partial(Updater, accumulate=2)``. An ``observer`` is shown each :class:`Step`. With ``propagate="selected"`` only
    the selected samples are propagated back, with the batch's statistics held constant: less work, another gradient.
    """

    holds = ("model", "updater", "select", "views")

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
        answer: Fuse | None = None,
        together: bool = False,
        propagate: str = "all",
        update: Callable[[Iterable[Parameter], OptimizerFactory], Updater] = Updater,
    ) -> None:
        if propagate not in {"all", "selected"}:
            raise TTCError(f"propagate is 'all' or 'selected', got '{propagate}'")
        if propagate == "selected" and (unselected or together):
            raise TTCError("propagate='selected' learns from selected samples alone, each view by itself")
        self.propagate = propagate
        if propagate == "selected":
            remembering(model.network)
        super().__init__(model)
        self.views = tuple(copy.deepcopy(view) for view in views)  # random views count their steps
        self.fuse, self.together, self.answer = fuse, together, answer
        self.losses, self.unselected, self.reduce = tuple(losses), tuple(unselected), reduce
        self.select = Everything() if select is None else select
        self.updater = update(model.parameters(), optimizer)
        self.observer: Callable[[Step], None] | None = None
        self._random_views(advance=False)

    def adapt(self, x: Tensor) -> Tensor:
        """One cycle: the A-step labels the batch, the U-step learns from the labels."""
        if self.propagate == "selected":
            assignment, weights, loss = self._forward_selected(x)
        else:
            assignment = assign(self.model, x, self.views, self.fuse, together=self.together)
            weights = self.select(assignment)
            some = getattr(self.select, "always_some", False) or bool(weights.any())
            loss = self._loss(assignment, weights) if some else None
        if loss is not None:
            self.updater(loss, len(x))
        else:
            self.updater.pass_over(len(x))
        self._random_views(advance=True)
        if self.observer is not None:
            self.observer(Step(assignment, weights, loss))
        return self._answer(assignment)

    def answer_only(self, x: Tensor) -> Tensor:
        """The A-step alone."""
        return self._answer(assign(self.model, x, self.views, self.fuse, together=self.together))

    def reset(self) -> None:
        """Put the model, the optimizer, the gathered gradients, the selector and the views back to their start."""
        super().reset()
        self.updater.reset()
        self.select.reset()
        self._random_views(advance=False)

    def _answer(self, assignment: Assignment) -> Tensor:
        return self.answer([view.logits for view in assignment.views]) if self.answer else assignment.logits

    def _random_views(self, *, advance: bool) -> None:
        for view in self.views:
            if isinstance(view, RandomView):
                view.step = view.step + 1 if advance else 0

    def _forward_selected(self, x: Tensor) -> tuple[Assignment, Tensor, Tensor | None]:
        """The A-step without gradients, then the loss of the selected samples, taken up from there."""
        with kept(self.model.network), torch.no_grad():
            assignment = assign(self.model, x, self.views, self.fuse)
        weights = self.select(assignment)
        rows = weights.nonzero().squeeze(1)
        with taken_up(self.model.network, rows):
            if not len(rows):
                return assignment, weights, None
            selected = assign(self.model, x, [_rows_of(view, rows) for view in self.views], self.fuse)
        return assignment, weights, self._loss(selected, weights[rows])

    def _loss(self, assignment: Assignment, weights: Tensor) -> Tensor:
        loss = self.reduce(_total(self.losses, assignment), weights)
        return loss + _total(self.unselected, assignment).mean() if self.unselected else loss


def _rows_of(view: View, rows: Tensor) -> View:
    return lambda x: view(x).index_select(0, rows)


def _total(losses: Sequence[Loss], assignment: Assignment) -> Tensor:
    total = losses[0](assignment)
    for loss in losses[1:]:
        total = total + loss(assignment)
    return total
