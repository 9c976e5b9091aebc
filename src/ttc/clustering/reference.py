"""Reference assigners: k-means and spectral clustering of the features, to compare a model's own assignment with.

They look at the features of a whole stream at once, which no method that predicts batch by batch can do. They need the
extra ``diagnose`` (scikit-learn).
"""

from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ttc.errors import TTCError

Labels = NDArray[np.int64]


def has_reference_assigners() -> bool:
    """Tell whether scikit-learn, which the reference assigners need, is installed."""
    return find_spec("sklearn") is not None


def kmeans(features: Tensor, predicted: Tensor) -> Tensor:
    """Assign samples to classes by k-means on normalized features, started at the mean feature per predicted class.

    Args:
        features: (N, D).
        predicted: The classes (N,) that the model predicts; clusters are as many as there are classes among them.

    Returns:
        A class per sample (N,): that of the predictions from which its cluster started.

    Raises:
        TTCError: If scikit-learn is not installed, or there are fewer samples than classes.
    """
    _require_library(features, predicted)
    from sklearn.cluster import KMeans

    rows, given = _normalized(features), predicted.cpu().numpy()
    classes = np.unique(given)
    centres = np.stack([rows[given == label].mean(0) for label in classes])
    found = KMeans(len(classes), init=centres, n_init=1).fit_predict(rows)
    return torch.from_numpy(classes[found]).to(predicted)


def spectral(features: Tensor, predicted: Tensor, *, neighbours: int = 10, seed: int = 0) -> Tensor:
    """Assign samples to classes by spectral clustering of the graph of nearest neighbours.

    Each cluster gets one class, so that the assignment agrees with the predictions on as many samples as possible.

    Args:
        features: (N, D).
        predicted: The classes (N,) that the model predicts; clusters are as many as there are classes among them.
        neighbours: The neighbours of each sample in the graph.
        seed: The seed of the clustering.

    Returns:
        A class per sample (N,).

    Raises:
        TTCError: If scikit-learn is not installed, or there are fewer samples than classes.
    """
    _require_library(features, predicted)
    import warnings

    from sklearn.cluster import SpectralClustering

    rows, given = _normalized(features), predicted.cpu().numpy()
    classes = np.unique(given)
    clustering = SpectralClustering(
        len(classes),
        affinity="nearest_neighbors",
        n_neighbors=min(neighbours, len(rows)),
        assign_labels="cluster_qr",
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Graph is not fully connected")  # clusters may be far apart
        found = np.asarray(clustering.fit_predict(rows), np.int64)
    return torch.from_numpy(_named(found, given, classes)).to(predicted)


def _named(clusters: Labels, predicted: Labels, classes: Labels) -> Labels:
    """Give each cluster one class, with the largest number of samples on which both agree."""
    from scipy.optimize import linear_sum_assignment

    agreement = np.array([[np.sum((clusters == c) & (predicted == k)) for k in classes] for c in range(len(classes))])
    _, chosen = linear_sum_assignment(-agreement)
    return np.asarray(classes[chosen][clusters], np.int64)


def _normalized(features: Tensor) -> NDArray[np.float64]:
    return np.asarray(F.normalize(features.detach().double(), dim=1).cpu().numpy())


def _require_library(features: Tensor, predicted: Tensor) -> None:
    if not has_reference_assigners():
        raise TTCError("k-means and spectral clustering need scikit-learn: pip install 'scikit-learn>=1.5'")
    classes = len(predicted.unique())
    if classes < 2 or len(features) <= classes:
        raise TTCError(
            f"clustering needs two classes or more and more samples than classes, got {len(features)} samples "
            f"predicted as {classes} classes"
        )
