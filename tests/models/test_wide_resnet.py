"""Wide residual networks against a transcription of their definition."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.models.wide_resnet import WideResNet

StateDict = dict[str, Tensor]


def test_wide_resnet_equals_a_transcription_of_its_definition() -> None:
    """The published forward pass, written out over the state dict with functional calls only."""
    torch.manual_seed(0)
    model = WideResNet(16, 2, 5).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    s: StateDict = model.state_dict()

    def norm(x: Tensor, at: str) -> Tensor:
        return F.batch_norm(
            x, s[f"{at}.running_mean"], s[f"{at}.running_var"], s[f"{at}.weight"], s[f"{at}.bias"], False, 0, 1e-5
        )

    x = torch.rand(3, 3, 32, 32)
    h = F.conv2d(x, s["conv1.weight"], padding=1)
    for block, first_stride in (("block1", 1), ("block2", 2), ("block3", 2)):
        for i in range(2):
            at = f"{block}.layer.{i}"
            stride = first_stride if i == 0 else 1
            a = norm(h, f"{at}.bn1").relu()
            y = F.conv2d(a, s[f"{at}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(norm(y, f"{at}.bn2").relu(), s[f"{at}.conv2.weight"], padding=1)
            h = y + (F.conv2d(a, s[f"{at}.convShortcut.weight"], stride=stride) if i == 0 else h)
    pooled = F.avg_pool2d(norm(h, "bn1").relu(), 8).flatten(1)
    expected = F.linear(pooled, s["fc.weight"], s["fc.bias"])
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)
