"""Convert any method for small batches, down to single images: nothing depends on the batch size any more."""

from collections.abc import Callable
from functools import partial

from ttc.core import Adapter, SmallBatches
from ttc.errors import TTCError
from ttc.methods.window import WindowAdapter
from ttc.nn import BlendNorm, EmaNorm, StatisticsNorm, WindowNorm, replace_batch_norms_

SETTINGS = SmallBatches(samples_per_step=200, image_weight=0.01)  # the paper's step; a memory of about 100 images
SOURCE_COUNT = 16  # images that the source statistics count for in a blend
WINDOW = 64  # recent images among which a new one is predicted
WINDOW_START = 16  # with fewer images in the window, the source statistics stand in for those missing

POLICIES: dict[str, Callable[[StatisticsNorm], StatisticsNorm]] = {
    "average": partial(EmaNorm, weight=SETTINGS.image_weight),
    "blend": partial(BlendNorm, source_pseudo_count=SOURCE_COUNT),
    "window": partial(WindowNorm, places=WINDOW_START),
}


def with_small_batches(adapter: Adapter, policy: str | bool) -> Adapter:
    """Convert an adapter that has not seen a batch yet, so that it works with batches of any size.

    Layers that normalize with the statistics of the batch use an exponential moving average over the images of the
    stream instead (``True`` or ``"average"``), or those of the batch blended with the source statistics by batch size
    (``"blend"``). Gradients are accumulated until 200 samples came and then averaged, so a step and its learning rate
    mean the same at every batch size; a method with a learning-rate rule of its own (TIPI's lr · N / 200) keeps it.
    Selection below the mean entropy uses the mean over recent images. Methods without such parts stay as they are.

    ``"window"`` leaves the method as it is and shows it the last 64 images with each batch
    (:class:`ttc.methods.window.WindowAdapter`): it predicts and learns as from batches of 64, at the cost of 64 images
    per call. Those images are in memory, and in the files it saves.

    Args:
        adapter: The adapter to convert; use only the returned one afterwards.
        policy: ``True``, ``"average"``, ``"blend"`` or ``"window"``.

    Returns:
        The converted adapter.

    Raises:
        TTCError: If the policy does not exist, or the method relies on the statistics of the batch.
    """
    name = "average" if policy is True else policy
    if name not in POLICIES:
        raise TTCError(f"small_batches is True, False or one of {', '.join(map(repr, POLICIES))}, got {policy!r}")
    if _requires_batch_statistics(adapter):
        raise TTCError("propagate='selected' needs the statistics of the batch alone; leave out it or small_batches")
    for network in adapter.networks():
        replace_batch_norms_(network, POLICIES[str(name)])
    if name == "window":
        return WindowAdapter(adapter, WINDOW)
    adapter.use_small_batches_(SETTINGS)
    return adapter


def _requires_batch_statistics(adapter: Adapter) -> bool:
    return adapter.requires_batch_statistics or any(part.requires_batch_statistics for part in adapter.parts())
