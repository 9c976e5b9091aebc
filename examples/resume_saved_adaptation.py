"""Stop in the middle of a stream, save the adaptation, and resume later as if it had never stopped."""

import tempfile
from pathlib import Path

import torch

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded

images = embedded()
labels = torch.from_numpy(images.labels[:400])
batches = as_tensor(corrupt(images.pixels(range(400)), "gaussian_noise", severity=5)).split(50)
model = ttc.models.embedded()

# What a process that never stops would predict.
never_stopped = ttc.adapt(model, "ttc")
expected = torch.cat([never_stopped(batch) for batch in batches])

with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "adaptation.safetensors"

    # Monday: three batches. TTC steps after four: the accumulated gradients are saved too.
    monday = ttc.adapt(model, "ttc")
    first_half = torch.cat([monday(batch) for batch in batches[:3]])
    monday.save(path)
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(f"saved {path.stat().st_size / 1000:.0f} kB; the model has {weights:,} weights")

    # Tuesday: the same model, loaded again, and the file, which contains method and options.
    tuesday = ttc.load_adaptation(ttc.models.embedded(), path)
    second_half = torch.cat([tuesday(batch) for batch in batches[3:]])

    # A file is bound to its model: for another one it is rejected in one sentence.
    other = ttc.models.build("resnet20")
    try:
        ttc.load_adaptation(other, path)
    except ttc.TTCError as error:
        print(f"another model: {str(error).partition(' was ')[2]}")

print(f"bit-equal to never having stopped: {torch.equal(torch.cat([first_half, second_half]), expected)}")
for name, logits, truth in (("Monday", first_half, labels[:150]), ("Tuesday", second_half, labels[150:])):
    print(f"{name:<8} {100 * (logits.argmax(1) == truth).float().mean():.1f} % correct")
with torch.no_grad():
    print(f"source   {100 * (torch.cat([model(batch) for batch in batches]).argmax(1) == labels).float().mean():.1f} %")
