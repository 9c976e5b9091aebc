"""Any method on small batches, down to single images: statistics and gradients that do not depend on the batch size."""

from collections.abc import Callable
from functools import partial

from ttc.clustering import BelowMeanEntropy, Updater
from ttc.core import Adapter, Snapshot
from ttc.core.normalization import AverageNorm, BlendNorm, NamedNorm
from ttc.core.replacement import without_batch_statistics
from ttc.core.window import FilledNorm, Windowed
from ttc.errors import TTCError

SAMPLES_PER_STEP = 200  # the paper's: gradients of that many samples make one step
IMAGE_WEIGHT = 0.01  # of a new image in the averages: a memory of about a hundred images
SOURCE_COUNT = 16  # images that the source's statistics count for in a blend
WINDOW = 64  # recent images that a new one is answered among
WINDOW_START = 16  # with fewer images in the window, the source's statistics stand in for those missing

POLICIES: dict[str, Callable[[NamedNorm], NamedNorm]] = {
    "average": partial(AverageNorm, weight=IMAGE_WEIGHT),
    "blend": partial(BlendNorm, source_pseudo_count=SOURCE_COUNT),
    "window": partial(FilledNorm, places=WINDOW_START),
}


def for_small_batches(adapter: Adapter, policy: str | bool) -> Adapter:
    """``adapter``, which is given up, made fit for batches of any size: nothing depends on the batch alone any more.

    Layers that normalize with the batch's statistics use an average over the images of the stream instead (``True`` or
    ``"average"``), or those of the batch blended with the source's by batch size (``"blend"``). Gradients are gathered
    until 200 samples came and then averaged, so a step and its learning rate mean the same at every batch size; a
    method with a learning-rate rule of its own (TIPI's lr · N / 200) keeps it. Selection below the mean entropy takes
    the mean over recent images. Methods without such parts stay as they are.

    ``"window"`` leaves the method as it is and shows it the last 64 images with each batch
    (:class:`ttc.core.window.Windowed`): it answers and learns as from batches of 64, at the cost of 64 images a call.
    Those images are held in memory, and in the files it saves.
    """
    name = "average" if policy is True else policy
    if name not in POLICIES:
        raise TTCError(f"small_batches is True, False or one of {', '.join(map(repr, POLICIES))}, got {policy!r}")
    if getattr(adapter, "propagate", "all") == "selected":
        raise TTCError("propagate='selected' needs the statistics of the batch alone; leave out it or small_batches")
    without_batch_statistics(adapter.model.network, POLICIES[str(name)])
    if name == "window":
        return Windowed(adapter, WINDOW)
    _count_samples(adapter)
    return adapter


def _count_samples(adapter: Adapter) -> None:
    adapter.start = Snapshot(adapter.model)  # the layers may have changed
    for name in adapter.holds:
        part = getattr(adapter, name)
        if isinstance(part, Updater) and part.reference_batch is None:
            part.gather_samples(SAMPLES_PER_STEP)
        elif isinstance(part, BelowMeanEntropy):
            part.image_weight = IMAGE_WEIGHT
        elif isinstance(part, Adapter):
            _count_samples(part)
