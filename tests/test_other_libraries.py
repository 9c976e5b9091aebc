"""The real libraries, where they are installed and import; tests/core has objects of the same form for the rest."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import ttc

pytestmark = pytest.mark.filterwarnings("ignore")  # of these libraries, about each other


def package(name: str) -> Any:
    """Import a package; skip where it is missing, or broken as torchvision is beside another build of torch."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name}: {error}")


def photos(count: int = 24) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)) for _ in range(count)]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["ResNet", "ViT"])
def test_transformers(kind: str, images: Tensor) -> None:
    transformers = package("transformers")
    small: dict[str, Any] = (
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
        if kind == "ResNet"
        else {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
              "image_size": 32, "patch_size": 8}
    )  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(**small, num_labels=5)
    model = getattr(transformers, f"{kind}ForImageClassification")(config)
    adapter = ttc.adapt(model, "ttc", normalize=([0.5] * 3, [0.25] * 3))
    assert adapter(images).shape == (8, 5)
    by_keyword = ttc.adapt(model, "source", forward=lambda model, images: model(pixel_values=images))
    with torch.no_grad():
        expected = model.eval()(images).logits
    torch.testing.assert_close(by_keyword(images), expected)


def test_a_split_of_datasets() -> None:
    datasets = package("datasets")
    columns: dict[str, Any] = {"image": photos(), "label": [i % 10 for i in range(24)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
    split = datasets.Dataset.from_dict(columns, features=features)
    adapter = ttc.adapt(ttc.models.embedded(), "norm")
    expected = adapter.run(list(zip(photos(), columns["label"], strict=True)), batch_size=8).finish()
    assert expected.labelled == 24
    for form in (split, split.with_format("torch"), split.to_iterable_dataset(), split.iter(8)):
        found = adapter.run(form, batch_size=8).finish()
        assert (found.correct, found.class_counts) == (expected.correct, expected.class_counts)
    renamed = split.rename_columns({"image": "photo", "label": "species"})
    assert adapter.run(renamed, batch_size=8, image_key="photo", label_key="species").finish().labelled == 24


def test_an_image_folder_of_torchvision(tmp_path: Path) -> None:
    folders, transforms = package("torchvision.datasets"), package("torchvision.transforms")
    for i, photo in enumerate(photos()):
        (tmp_path / str(i % 3)).mkdir(exist_ok=True)
        photo.save(tmp_path / str(i % 3) / f"{i}.png")
    folder = folders.ImageFolder(tmp_path)
    adapter = ttc.adapt(ttc.models.embedded(), "norm")
    whole = adapter.run(folder, batch_size=24).finish()
    loader = DataLoader(folders.ImageFolder(tmp_path, transforms.ToTensor()), batch_size=24)
    assert adapter.run(loader).finish().class_counts == whole.class_counts
    assert whole.labelled == 24


def test_models_of_timm_and_torchvision(images: Tensor) -> None:
    timm, models = package("timm"), package("torchvision.models")
    model = timm.create_model("resnet18", pretrained=False, num_classes=5)
    config = model.pretrained_cfg
    assert ttc.adapt(model, normalize=(config["mean"], config["std"]))(images).shape == (8, 5)
    weights = models.ResNet18_Weights.DEFAULT.transforms()
    assert ttc.adapt(models.resnet18(), normalize=(weights.mean, weights.std))(images).shape == (8, 1000)
    assert ttc.inspect(ttc.models.build("timm:resnet18", pretrained=False)).norm_layers
    with pytest.raises(ttc.TTCError, match=r"unknown timm model 'resnet81' .did you mean 'resnet18'"):
        ttc.models.build("timm:resnet81")


def test_a_test_loop_of_lightning(images: Tensor) -> None:
    lightning = package("lightning")
    adapter = ttc.adapt(ttc.models.embedded(), "tent")

    class Adapted(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.adapter = adapter.as_module()

        def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
            self.log("mean", self.adapter(batch[0]).mean())

    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    (metrics,) = trainer.test(Adapted(), DataLoader(TensorDataset(images), batch_size=4), verbose=False)
    other = ttc.adapt(ttc.models.embedded(), "tent")
    assert metrics["mean"] == pytest.approx(
        torch.cat([other(batch) for batch in images.split(4)]).mean().item(), abs=1e-4
    )
