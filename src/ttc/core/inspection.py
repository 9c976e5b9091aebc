"""Report what can be adapted in a model, and what a user should know before trying."""

from collections import Counter
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.classifier import Classifier, require_module
from ttc.core.input_checks import find_softmax, find_standardization
from ttc.core.representation import Rows, html_table
from ttc.core.statistics import norm_layers
from ttc.errors import TTCError


@dataclass(frozen=True, repr=False)
class Inspection:
    """The findings of :func:`inspect`; ``print`` shows them as text, a notebook as a table."""

    head: str | None
    num_classes: int | None
    feature_width: int | None
    parameters: int
    norm_layers: dict[str, int]
    affine_parameters: int
    warnings: tuple[str, ...]
    standardization: str | None = None
    """The layer that standardizes images; without one, the model gets them as they are, or ``normalize`` is given."""

    def summary_rows(self) -> Rows:
        """Return the findings as named values."""
        norms = ", ".join(f"{count} {kind}" for kind, count in self.norm_layers.items()) or "none"
        head = (
            f"'{self.head}', {self.feature_width} features to {self.num_classes} classes" if self.head else "not found"
        )
        return [
            ("parameters", f"{self.parameters:,}"),
            ("head", head),
            ("normalization layers", norms),
            ("adaptable parameters", f"{self.affine_parameters:,} (scale and shift)"),
            *(("warning", warning) for warning in self.warnings),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<20}  {value}" for name, value in self.summary_rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("model", self.summary_rows())


def inspect(model: nn.Module, *, head: str | None = None, batch_size: int | None = None) -> Inspection:
    """Report what adaptation can change in ``model``: its normalization layers, its head, and known obstacles.

    Args:
        model: Any classifier.
        head: The name of the final layer, where it cannot be found.
        batch_size: The batch size you plan to use, to be warned where it is too small.

    Returns:
        The findings; ``print`` shows them.

    Example:
        >>> pool = nn.AdaptiveAvgPool2d(1)
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), pool, nn.Flatten(), nn.Linear(4, 2))
        >>> found = inspect(model)
        >>> found.head, found.norm_layers, found.affine_parameters
        ('4', {'BatchNorm2d': 1}, 8)
        >>> found.warnings
        ()
    """
    require_module(model)
    warnings = []
    classifier: Classifier | None = None
    try:
        classifier = Classifier(model, head)
    except TTCError as error:
        warnings.append(str(error))
    if softmax := find_softmax(model):
        warnings.append(
            f"the layer '{softmax}' makes probabilities of the logits: remove it, or adapt with output='probabilities'"
        )
    if classifier is not None and classifier.num_classes == 1:
        warnings.append("the head has one output: adaptation needs a logit per class, two for a yes-or-no question")
    layers = [layer for _, layer in norm_layers(model)]
    affine = sum(parameter.numel() for layer in layers for parameter in layer.parameters(recurse=False))
    batch_norms = [layer for layer in layers if isinstance(layer, _BatchNorm)]
    if not layers:
        warnings.append("no normalization layers: only 'source', 't3a' and 'source+flip' apply")
    elif not affine:
        warnings.append("the normalization layers have no scale and shift: only statistics can adapt ('norm')")
    elif not batch_norms:
        warnings.append("no BatchNorm: 'norm' equals 'source', the other methods adapt scale and shift only")
    if batch_norms and any(layer.running_mean is None for layer in batch_norms):
        warnings.append("a BatchNorm stores no source statistics: 'norm-blend', 'norm-ema' and 'tipi' do not apply")
    if batch_norms and batch_size == 1:
        warnings.append("batch of one: batch statistics of one image ruin most networks: adapt with small_batches=True")
    elif batch_norms and batch_size is not None and batch_size < 16:
        warnings.append(f"small batch ({batch_size}): batch statistics are noisy: adapt with small_batches=True")
    return Inspection(
        head=classifier.head_name if classifier else None,
        num_classes=classifier.num_classes if classifier else None,
        feature_width=classifier.head_weight.shape[1] if classifier else None,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        standardization=find_standardization(model),
        norm_layers=dict(Counter(type(layer).__name__ for layer in layers)),
        affine_parameters=affine,
        warnings=tuple(warnings),
    )
