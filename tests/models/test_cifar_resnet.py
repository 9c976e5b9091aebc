"""The CIFAR residual networks against a transcription of their definition."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.models.cifar_resnet import CifarResNet


def randomize_norms(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)


def batch_norms(s: dict[str, Tensor]) -> Callable[[Tensor, str], Tensor]:
    """Return a function that normalizes with the running statistics of the layer of a name."""

    def norm(x: Tensor, at: str) -> Tensor:
        return F.batch_norm(
            x, s[f"{at}.running_mean"], s[f"{at}.running_var"], s[f"{at}.weight"], s[f"{at}.bias"], False, 0, 1e-5
        )

    return norm


def test_equals_a_transcription_with_padded_shortcuts() -> None:
    torch.manual_seed(0)
    model = CifarResNet(depth=14, num_classes=5, statistics=None).eval()
    randomize_norms(model)
    s = model.state_dict()

    norm = batch_norms(s)
    x = torch.rand(3, 3, 32, 32)
    h = norm(F.conv2d(x, s["conv1.weight"], padding=1), "bn1").relu()
    for layer in (1, 2, 3):
        for i in range(2):
            at, stride = f"layer{layer}.{i}", 2 if layer > 1 and i == 0 else 1
            y = norm(F.conv2d(h, s[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").relu()
            y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
            if stride == 2:  # option A: subsample, then pad the channels with zeros on both sides
                half = h.shape[1] // 2
                zeros = torch.zeros(3, half, y.shape[2], y.shape[3])
                h = torch.cat([zeros, h[:, :, ::2, ::2], zeros], dim=1)
            h = (y + h).relu()
    expected = F.linear(h.mean((2, 3)), s["linear.weight"], s["linear.bias"])
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("depth", [8, 20])
def test_depth_counts_the_weight_layers(depth: int) -> None:
    model = CifarResNet(depth)
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules()) == depth


def test_option_b_equals_a_transcription_with_projections() -> None:
    torch.manual_seed(1)
    model = CifarResNet(depth=8, num_classes=5, statistics=None, option="B").eval()
    randomize_norms(model)
    s = model.state_dict()

    norm = batch_norms(s)
    x = torch.rand(3, 3, 32, 32)
    h = norm(F.conv2d(x, s["conv1.weight"], padding=1), "bn1").relu()
    for layer in (1, 2, 3):
        at, stride = f"layer{layer}.0", 2 if layer > 1 else 1
        y = norm(F.conv2d(h, s[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").relu()
        y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
        if stride == 2:
            h = norm(F.conv2d(h, s[f"{at}.shortcut.0.weight"], stride=2), f"{at}.shortcut.1")
        h = (y + h).relu()
    expected = F.linear(h.mean((2, 3)), s["linear.weight"], s["linear.bias"])
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)
