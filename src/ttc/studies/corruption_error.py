"""The mean corruption error of Hendrycks and Dietterich (ICLR 2019): errors over five severities, relative to a model.

``CE_c = Σ_s E_{s,c} / Σ_s R_{s,c}`` in percent, where E is the error of a method on corruption c at severity s and R
that of the reference model; mCE is the mean over the fifteen corruptions. The relative CE subtracts the clean error
from every E and R. On ImageNet-C the reference is AlexNet.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Percent: errors of AlexNet on the published ImageNet-C, averaged over the five severities, as the benchmark's authors
# publish them (github.com/hendrycks/robustness); rounded they are those of Table 1 of arXiv:1903.12261.
ALEXNET: Mapping[str, float] = {
    "gaussian_noise": 88.6428,
    "shot_noise": 89.4468,
    "impulse_noise": 92.2640,
    "defocus_blur": 81.9880,
    "glass_blur": 82.6268,
    "motion_blur": 78.5948,
    "zoom_blur": 79.8360,
    "snow": 86.6816,
    "frost": 82.6572,
    "fog": 81.9324,
    "brightness": 56.4592,
    "contrast": 85.3204,
    "elastic_transform": 64.6056,
    "pixelate": 71.7840,
    "jpeg_compression": 60.6500,
}
ALEXNET_CLEAN = 43.5


@dataclass(frozen=True)
class Reference:
    """The model that errors are divided by: its name, its error per corruption, and its clean error, in percent."""

    name: str
    errors: Mapping[str, float]
    clean: float | None


def corruption_errors(errors: Mapping[str, float], reference: Reference) -> dict[str, float]:
    """Return the CE per corruption, in percent.

    Args:
        errors: The error of a method per corruption in percent, the mean over the five severities.
        reference: What they are divided by.

    Example:
        >>> corruption_errors({"fog": 40.0}, Reference("other", {"fog": 80.0}, 10.0))
        {'fog': 50.0}
    """
    return {name: 100 * error / reference.errors[name] for name, error in errors.items()}


def relative_errors(errors: Mapping[str, float], clean: float, reference: Reference) -> dict[str, float]:
    """Return the relative CE per corruption, in percent: what corruption adds to the clean error.

    Args:
        errors: The error of a method per corruption in percent, the mean over the five severities.
        clean: Its error on clean images in percent.
        reference: What they are divided by; it must have a clean error.

    Example:
        >>> relative_errors({"fog": 40.0}, 5.0, Reference("other", {"fog": 80.0}, 10.0))
        {'fog': 50.0}
    """
    assert reference.clean is not None
    added = {name: reference.errors[name] - reference.clean for name in errors}
    return {name: 100 * (error - clean) / added[name] if added[name] else np.nan for name, error in errors.items()}
