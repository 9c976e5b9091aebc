"""Adapt to a folder of images with one subfolder per class, and compare the accuracy with and without adaptation."""

import tempfile
from pathlib import Path

import torch
from PIL import Image

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded, image_folder

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

with tempfile.TemporaryDirectory() as directory:
    # A folder as from a camera in the fog: DIRECTORY/<class>/<number>.png
    foggy = corrupt(embedded().pixels(range(300)), "fog", severity=5)
    for number, (pixels, label) in enumerate(zip(foggy, embedded().labels, strict=False)):
        path = Path(directory) / CLASSES[label] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)

    # Classes are numbered by the sorted folder names; `size=224` would resize and crop other images.
    folder = image_folder(Path(directory))
    print(f"{len(folder)} images of {folder.num_classes} classes in {folder.root.name}")

    # Files are sorted by class, and a batch of one class misleads adaptation: shuffle them.
    order = torch.randperm(len(folder), generator=torch.Generator().manual_seed(0))
    model = ttc.models.embedded()
    methods = {"as trained": ttc.adapt(model, "source"), "adapted": ttc.adapt(model, "ttc")}
    correct = dict.fromkeys(methods, 0)
    for index in order.split(100):  # only one batch of images is in memory at a time
        images = as_tensor(folder.pixels(index.numpy()))
        labels = torch.from_numpy(folder.labels)[index]
        for name, adapter in methods.items():
            correct[name] += int((adapter(images).argmax(1) == labels).sum())

for name, count in correct.items():
    print(f"{name:<10} {100 * count / len(order):.1f} % of the images correct")
print("without labels, the same is one command: ttc adapt embedded FOLDER")
