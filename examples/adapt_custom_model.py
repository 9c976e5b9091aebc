"""Adapt a model of your own: here a small network that this script trains itself, in a few seconds."""

import torch
from torch import Tensor, nn

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded

# 1. Your model: any module that maps images in [0, 1] to logits, with normalization layers and a linear head.
torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48 * 16, 10)),
)

# 2. Train it on 1,500 clean images: far too few for a good model, enough to see adaptation work.
images, labels = embedded(), torch.from_numpy(embedded().labels)
clean = as_tensor(images.pixels(range(1500)))
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=8 * 30)
for _ in range(8):
    for index in torch.randperm(1500).split(50):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(clean[index]), labels[index]).backward()
        optimizer.step()
        schedule.step()
model.eval()

# 3. What can be adapted in it, and what would prevent that.
print(ttc.inspect(model), end="\n\n")


# 4. The other 500 images, clean and corrupted, without adaptation and with it.
def accuracy(adapter: ttc.Adapter, batches: tuple[Tensor, ...]) -> float:
    """Return the percentage of the last 500 images that are predicted correctly, batch by batch."""
    predicted = torch.cat([adapter(batch).argmax(1) for batch in batches])
    return 100 * (predicted == labels[1500:]).float().mean().item()


pixels = images.pixels(range(1500, 2000))
for name in ("clean", "contrast", "fog"):
    inputs = pixels if name == "clean" else corrupt(pixels, name, severity=5)
    batches = as_tensor(inputs).split(100)
    source, adapted = (accuracy(ttc.adapt(model, method), batches) for method in ("source", "ttc"))
    print(f"{name:<11} as trained {source:4.1f} %   adapted {adapted:4.1f} %")
