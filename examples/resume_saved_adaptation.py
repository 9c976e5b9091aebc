"""Stop in the middle of a stream, save what was learned, and go on later as if nothing had happened."""

import tempfile
from pathlib import Path

import torch

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded

images = embedded()
labels = torch.from_numpy(images.labels[:400])
batches = as_tensor(corrupt(images.pixels(range(400)), "gaussian_noise", severity=5)).split(50)
model = ttc.models.embedded_model()

# What a process that never stops would answer.
never_stopped = ttc.adapt(model, "ttc")
expected = torch.cat([never_stopped(batch) for batch in batches])

with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "adaptation.safetensors"

    # Monday: three batches. TTC steps after four: the gradients that wait are saved too.
    monday = ttc.adapt(model, "ttc")
    first_half = torch.cat([monday(batch) for batch in batches[:3]])
    monday.save(path)
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(f"saved {path.stat().st_size / 1000:.0f} kB; the model has {weights:,} weights")

    # Tuesday: the same model, loaded anew, and the file. Method and options are in it.
    tuesday = ttc.load_adaptation(ttc.models.embedded_model(), path)
    second_half = torch.cat([tuesday(batch) for batch in batches[3:]])

    # A file is bound to its model: another one is refused in a sentence.
    other = ttc.models.build("resnet20")
    try:
        ttc.load_adaptation(other, path)
    except ttc.TTCError as refusal:
        print(f"another model: {str(refusal).partition(' was ')[2]}")

print(f"equal to never having stopped, bit by bit: {torch.equal(torch.cat([first_half, second_half]), expected)}")
for name, logits, truth in (("Monday", first_half, labels[:150]), ("Tuesday", second_half, labels[150:])):
    print(f"{name:<8} {100 * (logits.argmax(1) == truth).float().mean():.1f} % right")
with torch.no_grad():
    print(f"source   {100 * (torch.cat([model(batch) for batch in batches]).argmax(1) == labels).float().mean():.1f} %")
