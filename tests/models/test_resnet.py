"""Four-stage residual networks against a transcription of their definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.models import build

StateDict = dict[str, Tensor]


@pytest.mark.parametrize("name", ["imagenet-resnet50", "imagenet-resnet50-original", "cifar-resnet18"])
def test_residual_networks_equal_a_transcription(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, num_classes=4, statistics="none")
    s: StateDict = model.state_dict()
    large, original = name.startswith("imagenet"), name.endswith("original")
    eps = 1e-3 if original else 1e-5

    def norm(x: Tensor, at: str) -> Tensor:
        return F.batch_norm(
            x, s[f"{at}.running_mean"], s[f"{at}.running_var"], s[f"{at}.weight"], s[f"{at}.bias"], False, 0, eps
        )

    x = torch.rand(2, 3, 32, 32)
    h = norm(F.conv2d(x, s["conv1.weight"], stride=2 if large else 1, padding=3 if large else 1), "bn1").relu()
    if large:
        h = F.max_pool2d(h, 3, 2, 1)
    for layer, count in zip((1, 2, 3, 4), (3, 4, 6, 3) if large else (2, 2, 2, 2), strict=True):
        for i in range(count):
            at, stride = f"layer{layer}.{i}", 2 if layer > 1 and i == 0 else 1
            if large:
                first, second = (stride, 1) if original else (1, stride)
                y = norm(F.conv2d(h, s[f"{at}.conv1.weight"], stride=first), f"{at}.bn1").relu()
                y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], stride=second, padding=1), f"{at}.bn2").relu()
                y = norm(F.conv2d(y, s[f"{at}.conv3.weight"]), f"{at}.bn3")
            else:
                y = norm(F.conv2d(h, s[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").relu()
                y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
            short = f"{at}.downsample" if large else f"{at}.shortcut"
            if f"{short}.0.weight" in s:
                h = norm(F.conv2d(h, s[f"{short}.0.weight"], stride=stride), f"{short}.1")
            h = (y + h).relu()
    head = "fc" if large else "linear"
    expected = F.linear(h.mean((2, 3)), s[f"{head}.weight"], s[f"{head}.bias"])
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


def test_imagenet_stem_reduces_by_thirty_two() -> None:
    model = build("imagenet-resnet18", num_classes=7)
    seen: list[torch.Size] = []
    model.get_submodule("layer4").register_forward_hook(lambda _m, _i, out: seen.append(out.shape))
    with torch.no_grad():
        assert model(torch.rand(1, 3, 64, 64)).shape == (1, 7)
    assert seen == [torch.Size([1, 512, 2, 2])]
