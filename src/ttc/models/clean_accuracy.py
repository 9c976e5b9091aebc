"""The clean accuracy of a model beside the published one: wrong input statistics or variants raise no other error."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, from_numpy, nn

from ttc.data import Images, as_tensor
from ttc.models.building import build
from ttc.models.card import accuracy
from ttc.models.embedded_model import embedded_card
from ttc.models.weight_files import matching_architectures, read_state_dict
from ttc.models.zoo import INPUT_STATISTICS, MODELS

BATCH = 50
PROBED = 100  # images on which other settings are tried after a low accuracy
MARGIN = 0.05  # below the published accuracy, besides the sampling error
CAUSES = "other input statistics, another order of the classes, or another variant of the architecture"


@dataclass(frozen=True)
class CleanAccuracy:
    """A measured accuracy and what to compare it with; accuracies are fractions in [0, 1].

    Args:
        accuracy: Of the images.
        count: How many images.
        num_classes: How many classes.
        published: The accuracy published for such a checkpoint on this dataset, if known.
    """

    accuracy: float
    count: int
    num_classes: int
    published: float | None = None

    @property
    def expected(self) -> tuple[float, float] | None:
        """The range in which the accuracy of a correct set-up lies: five points and four sampling errors wide."""
        if self.published is None:
            return None
        width = MARGIN + 4 * math.sqrt(self.published * (1 - self.published) / self.count)
        return max(0.0, self.published - width), min(1.0, self.published + width)

    @property
    def is_too_low(self) -> bool:
        """Whether it is below the expected range or, if none is known, hardly above chance."""
        chance = 1 / self.num_classes
        noise = 4 * math.sqrt(chance * (1 - chance) / self.count)
        return self.accuracy < (self.expected[0] if self.expected else 2 * chance + noise)

    def __str__(self) -> str:
        text = f"{self.accuracy:.2%} of {self.count:,} images"
        if self.expected:
            low, high = self.expected
            text += f"; published {self.published:.2%}, so expected {low:.1%} to {high:.1%}"
        return text


def measure_accuracy(model: nn.Module, images: Images, published: float | None = None) -> CleanAccuracy:
    """Measure the accuracy of a model on all images of a dataset.

    Args:
        model: The model, in evaluation mode.
        images: The clean images.
        published: The accuracy to compare with.

    Returns:
        The accuracy.

    Raises:
        TTCError: An image cannot be read.
    """
    found = accuracy(model, _batches(images, len(images)))
    return CleanAccuracy(found, len(images), images.num_classes, published)


def published_accuracy(model: str, dataset: str, num_classes: int) -> float | None:
    """Return the published clean accuracy of a model of the zoo.

    >>> published_accuracy("resnet56-b", "cifar100", 100)
    0.7263

    Args:
        model: The name of the model.
        dataset: The name of the dataset; a folder of images of 1,000 classes counts as ImageNet.
        num_classes: The number of classes of the dataset.

    Returns:
        The fraction in [0, 1], or None if it is not known.
    """
    kind = dataset.partition(":")[0]
    if kind == "imagefolder" and num_classes == 1000:
        kind = "imagenet"
    if model == "embedded":
        card = embedded_card()
        return float(card["clean_accuracy"]) if kind in {"embedded", "cifar10"} else None
    return MODELS[model].accuracies.get("cifar10" if kind == "embedded" else kind) if model in MODELS else None


def fitting_variants(model: str, checkpoint: Path | None) -> list[str]:
    """Return the other architectures of the zoo that have the parameters of a checkpoint."""
    if checkpoint is None or model not in MODELS:
        return []
    return [name for name in matching_architectures(read_state_dict(checkpoint)) if name != model]


def better_settings(model: str, checkpoint: Path | None, images: Images, found: float) -> list[tuple[str, float]]:
    """Try other input statistics and variants on a few images.

    Args:
        model: The name of the model, of the zoo.
        checkpoint: Its weights.
        images: The clean images.
        found: The accuracy to exceed.

    Returns:
        The settings that exceed it by more than ``MARGIN``, with their accuracies, best first.
    """
    if checkpoint is None or model not in MODELS:
        return []
    count = min(PROBED, len(images))
    tried = {f"--model {name}": build(name, checkpoint=checkpoint) for name in fitting_variants(model, checkpoint)}
    for name in INPUT_STATISTICS:
        tried[f"the input statistics '{name}'"] = build(model, checkpoint=checkpoint, statistics=name)
    results = [(name, accuracy(network, _batches(images, count))) for name, network in tried.items()]
    return sorted(((name, value) for name, value in results if value > found + MARGIN), key=lambda one: -one[1])


def _batches(images: Images, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``count`` images at even distances, which are of all classes where the dataset is sorted by class."""
    places = [i * len(images) // count for i in range(count)]
    for start in range(0, count, BATCH):
        index = places[start : start + BATCH]
        yield as_tensor(images.pixels(index)), from_numpy(images.labels[index])
