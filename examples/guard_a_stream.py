"""Guard two streams: one that adaptation mends, and one that misleads it, where the guard steps in."""

import torch

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded
from ttc.deploy import Event, Guard, Stream

images = embedded()
labels = torch.from_numpy(images.labels)
model = ttc.models.embedded_model()


def tell(event: Event) -> None:
    """Your monitoring goes here."""
    print(f"  the guard, after {event.images} images: {event.action} ({event.reason})")


any_order = torch.arange(200)
in_order = labels[300:500].argsort(stable=True) + 300  # one class after the other: batch statistics mislead
for name, corruption, index in (
    ("contrast, any order", "contrast", any_order),
    ("JPEG, sorted", "jpeg_compression", in_order),
):
    print(name)
    pixels = as_tensor(corrupt(images.pixels(index.numpy()), corruption, severity=5))
    guard = Guard(ttc.adapt(model, "ttc", small_batches=True), on_event=tell)
    answers: dict[str, ttc.Adapter | Guard] = {
        "source": ttc.adapt(model, "source"),
        "unguarded": ttc.adapt(model, "ttc", small_batches=True),
        "guarded": guard,
    }
    for who, adapter in answers.items():
        # Single images from any thread go in, micro-batches of up to 50 reach the adapter, answers come in order.
        with Stream(adapter, batch_size=50) as stream:
            found = torch.stack(list(stream.map(pixels))).argmax(1)
        print(f"  {who:<10} {100 * (found == labels[index]).float().mean():.1f} % right")
    shown = {key: round(guard.stats[key], 2) for key in ("images", "rollbacks", "effective_classes", "drift")}
    print(f"  the guard is {guard.mode}: {shown}")
