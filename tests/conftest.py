"""A small trained classifier and a shifted stream, on which selectors accept some samples and reject some."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from tests.ray_cluster import RayCluster

CLASSES, SIDE = 4, 8


@pytest.fixture(autouse=True, scope="session")
def _empty_data_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what the developer has fetched out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTC_DATA", str(tmp_path_factory.mktemp("data")))
        yield


class SmallNet(nn.Module):
    """Convolutions, BatchNorm, a little dropout that must stay off, a linear head."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.dropout(self.body(x).mean((2, 3))))
        return logits


def labelled_images(count: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Coloured stripes, one pattern a class, with noise that differs from image to image."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    ramp = torch.arange(SIDE)
    stripes = torch.stack([((ramp // (1 + label % 2)) % 2).float() for label in range(CLASSES)])
    images = torch.where((labels < 2)[:, None, None], stripes[labels][:, :, None], stripes[labels][:, None, :])
    images = images.expand(count, SIDE, SIDE)[:, None] * torch.tensor([0.9, 0.5, 0.3]).view(1, 3, 1, 1)
    level = noise * torch.rand(count, 1, 1, 1, generator=generator)
    images = images + level * torch.randn(images.shape, generator=generator)
    return images.clamp(0, 1), labels


def train_small_net() -> SmallNet:
    """Train a classifier of four patterns on clean images, the same each time."""
    torch.manual_seed(0)
    model = SmallNet()
    images, labels = labelled_images(512, 0.3, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(60):
        index = torch.arange(64) + 64 * (step % 8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
        optimizer.step()
    return model


@pytest.fixture(scope="session")
def trained() -> SmallNet:
    """The source model; tests take ``model``, which checks that nobody touched it."""
    return train_small_net()


@pytest.fixture
def model(trained: SmallNet) -> Iterator[SmallNet]:
    """The trained model, in training mode as a careless caller would leave it; unchanged after every test."""
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    yield trained
    after = trained.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before), "the caller's model was touched"
    assert trained.training
    assert all(parameter.requires_grad for parameter in trained.parameters())
    assert not trained.fc._forward_pre_hooks


@pytest.fixture(scope="session")
def stream() -> list[Tensor]:
    """Five batches of shifted images: darker, noisier, tinted."""
    images, _ = labelled_images(5 * 24, 1.2, seed=2)
    shifted = images * torch.tensor([0.5, 0.8, 1.0]).view(1, 3, 1, 1) + 0.1
    return list(shifted.split(24))


@pytest.fixture(scope="session")
def labelled() -> Callable[[int, float, int], tuple[Tensor, Tensor]]:
    """Makes labelled images: how many, how noisy, from which seed."""
    return labelled_images


@pytest.fixture(scope="session")
def ray_cluster() -> "Iterator[RayCluster]":
    """A Ray cluster of a head and two workers, one for all tests."""
    pytest.importorskip("ray")
    from tests.ray_cluster import RayCluster

    cluster = RayCluster()
    yield cluster
    cluster.stop()
