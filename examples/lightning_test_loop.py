"""Adapt in the test loop of Lightning: a LightningModule whose test_step calls an adapter.

Without Lightning installed, a few lines stand in for its module and trainer, so that the example runs anyway.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ttc
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded

try:
    from lightning import LightningModule, Trainer
except ImportError:

    class LightningModule(nn.Module):  # type: ignore[no-redef]
        """What the example needs of Lightning's module."""

        def log(self, name: str, value: Tensor) -> None:
            """Store a value for the trainer."""
            self.logged = {**getattr(self, "logged", {}), name: float(value)}

    class Trainer:  # type: ignore[no-redef]
        """What the example needs of Lightning's trainer."""

        def __init__(self, **options: object) -> None:
            pass

        def test(
            self, module: LightningModule, loader: "DataLoader[Any]", verbose: bool = True
        ) -> list[dict[str, float]]:
            """Run the test loop as Lightning does: in evaluation mode, without gradients."""
            module.eval()
            with torch.inference_mode():
                for index, batch in enumerate(loader):
                    module.test_step(batch, index)
                module.on_test_epoch_end()
            return [module.logged]


class AdaptedModule(LightningModule):  # type: ignore[misc]
    """Predicts and adapts in every test step; the adapter is a submodule, so it moves and is saved with this one."""

    def __init__(self, adapter: ttc.Adapter) -> None:
        super().__init__()
        self.adapter = adapter.as_module()
        self.correct = self.images = 0

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Adapt to a batch: gradients are enabled inside the adapter, whatever the trainer does."""
        images, labels = batch
        self.correct += int((self.adapter(images).argmax(1) == labels).sum())
        self.images += len(labels)

    def on_test_epoch_end(self) -> None:
        """Log the accuracy over all batches."""
        self.log("accuracy", torch.tensor(100 * self.correct / self.images))


images = embedded()
order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).numpy()  # the classes in any order
pixels = as_tensor(corrupt(images.pixels(order), "fog", severity=5))
loader = DataLoader(TensorDataset(pixels, torch.from_numpy(images.labels[order])), batch_size=50)
trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
for name, method in (("as trained", "source"), ("adapted", "ttc")):
    (metrics,) = trainer.test(AdaptedModule(ttc.adapt(ttc.models.embedded(), method)), loader, verbose=False)
    print(f"{name:<10} {metrics['accuracy']:.1f} %")
