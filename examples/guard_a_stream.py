"""Guard two streams: one that adaptation improves, and one that misleads it, where the guard intervenes."""

import torch

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded
from ttc.deploy import Event, Guard, Stream

images = embedded()
labels = torch.from_numpy(images.labels)
model = ttc.models.embedded()


def report(event: Event) -> None:
    """Send the event to your monitoring; here it is printed."""
    print(f"  the guard, after {event.images} images: {event.action} ({event.reason})")


any_order = torch.arange(200)
in_order = labels[300:500].argsort(stable=True) + 300  # one class after the other: batch statistics mislead
for name, corruption, index in (
    ("contrast, any order", "contrast", any_order),
    ("JPEG, sorted", "jpeg_compression", in_order),
):
    print(name)
    pixels = as_tensor(corrupt(images.pixels(index.numpy()), corruption, severity=5))
    guard = Guard(ttc.adapt(model, "ttc", small_batches=True), on_event=report)
    predictors: dict[str, ttc.Adapter | Guard] = {
        "source": ttc.adapt(model, "source"),
        "unguarded": ttc.adapt(model, "ttc", small_batches=True),
        "guarded": guard,
    }
    for label, predictor in predictors.items():
        # Single images from any thread go in, micro-batches of up to 50 are predicted, logits come out in order.
        with Stream(predictor, batch_size=50) as stream:
            predicted = torch.stack(list(stream.map(pixels))).argmax(1)
        print(f"  {label:<10} {100 * (predicted == labels[index]).float().mean():.1f} % correct")
    signals = {
        key: round(guard.stats[key], 2) for key in ("images", "rollbacks", "effective_classes", "parameter_drift")
    }
    print(f"  the guard is {guard.mode}: {signals}")
