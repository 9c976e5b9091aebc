"""timm and torchvision are large and optional: small packages with the same few functions stand in for them here."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ttc.errors import TTCError
from ttc.models import build
from ttc.models.external import StandardizedModel

TIMM = """
import types
from torch import nn
def is_model(name): return name == "tiny"
def list_models(): return ["resmlp", "resnet10t", "resnet101", "resnet18", "resnet18d", "resnet50", "tiny", "vit"]
def create_model(name, pretrained, num_classes=5):
    if pretrained and name.endswith(".gone"): raise OSError("no route to host")
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes))
    if pretrained: nn.init.constant_(model[1].weight, 0.25)
    return model
config = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "input_size": (3, 2, 2)}
data = types.SimpleNamespace(resolve_model_data_config=lambda model: config)
"""
TORCHVISION = """
import enum, types
from torch import nn
class Weights(enum.Enum):
    IMAGENET1K_V1 = 1
    IMAGENET1K_V2 = 2
    DEFAULT = 2
    def transforms(self): return types.SimpleNamespace(mean=[0.1 * self.value] * 3, std=[0.5] * 3, crop_size=[2])
def get_model(name, weights, num_classes=None):
    if name == "tiny_gone" and weights: raise OSError("no route to host")
    if weights and num_classes not in (None, 5): raise ValueError("expected num_classes 5")
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes or 5))
    if weights: nn.init.constant_(model[1].weight, float(weights.value))
    return model
models = types.SimpleNamespace(get_model_weights=lambda name: Weights, get_model=get_model)
models.list_models = lambda: ["tiny", "tiny_gone"]
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("timm", "torchvision", "mine"):
        sys.modules.pop(name, None)


def input_layer(model: torch.nn.Module) -> tuple[float, float]:
    buffers = dict(model.get_submodule("standardize").named_buffers())
    return float(buffers["mean"][0, 0]), float(buffers["std"][0, 0])


def test_timm(packages: Path) -> None:
    (packages / "timm.py").write_text(TIMM)
    model = build("timm:tiny")
    assert isinstance(model, StandardizedModel)
    assert model.side == 2
    assert input_layer(model) == (0.5, 0.25)
    x = torch.rand(3, 3, 2, 2)
    network = model.network
    with torch.no_grad():
        torch.testing.assert_close(model(x), network((x - 0.5) / 0.25))
        assert build("timm:tiny", num_classes=9)(x).shape == (3, 9)


def test_timm_checkpoint(packages: Path) -> None:
    (packages / "timm.py").write_text(TIMM)
    state = {"1.weight": torch.full((5, 12), 3.0), "1.bias": torch.zeros(5)}
    torch.save(state, packages / "w.pt")
    model = build("timm:tiny", checkpoint=packages / "w.pt")
    assert torch.equal(model.state_dict()["network.1.weight"], state["1.weight"])


def test_timm_rejections(packages: Path) -> None:
    (packages / "timm.py").write_text(TIMM)
    with pytest.raises(TTCError, match=r"unknown timm model 'tin' \(did you mean 'tiny'\?\)"):
        build("timm:tin")
    with pytest.raises(TTCError, match=r"unknown timm model 'resnet81' \(did you mean 'resnet18'\?\); .*: resnet18, "):
        build("timm:resnet81")
    with pytest.raises(
        TTCError, match=r"timm:tiny.gone: the pretrained weights cannot be downloaded \(no route to host\)"
    ):
        build("timm:tiny.gone")
    with pytest.raises(TTCError, match="timm:tiny has its own input statistics: omit statistics='none'"):
        build("timm:tiny", statistics="none")


def test_torchvision(packages: Path) -> None:
    (packages / "torchvision.py").write_text(TORCHVISION)
    newest, older = build("torchvision:tiny"), build("torchvision:tiny@IMAGENET1K_V1")
    assert [float(m.state_dict()["network.1.weight"][0, 0]) for m in (newest, older)] == [2, 1]
    assert [input_layer(m) for m in (newest, older)] == [pytest.approx((0.2, 0.5)), pytest.approx((0.1, 0.5))]
    torch.save({"1.weight": torch.full((7, 12), 3.0), "1.bias": torch.zeros(7)}, packages / "w.pt")
    own = build("torchvision:tiny@IMAGENET1K_V1", num_classes=7, checkpoint=packages / "w.pt")
    assert own.state_dict()["network.1.weight"].shape == (7, 12)
    assert input_layer(own) == pytest.approx((0.1, 0.5))


def test_torchvision_rejections(packages: Path) -> None:
    (packages / "torchvision.py").write_text(TORCHVISION)
    with pytest.raises(
        TTCError, match=r"unknown torchvision model 'tiny2' \(did you mean 'tiny'\?\); choose from: tiny, tiny_gone"
    ):
        build("torchvision:tiny2")
    with pytest.raises(
        TTCError, match=r"unknown weights of torchvision:tiny 'V9'; choose from: IMAGENET1K_V1, IMAGENET1K_V2"
    ):
        build("torchvision:tiny@V9")
    with pytest.raises(TTCError, match=r"tiny_gone: the pretrained weights cannot be downloaded"):
        build("torchvision:tiny_gone")
    with pytest.raises(TTCError, match=r"expected num_classes 5; another number of classes needs a checkpoint"):
        build("torchvision:tiny", num_classes=6)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_absent_packages_are_named(packages: Path, package: str) -> None:
    (packages / f"{package}.py").write_text("raise ImportError('no such thing')")
    with pytest.raises(
        TTCError,
        match=rf"{package}:x needs the package {package}, which is installed but .* \(no such thing\): (pip )?install",
    ):
        build(f"{package}:x")


def test_own_model(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (packages / "mine.py").write_text(
        "from torch import nn\n"
        "def fixed(): return nn.Linear(2, 3)\n"
        "def flexible(num_classes=4): return nn.Linear(2, num_classes)\n"
        "def wrong(): return 5\n"
    )
    x = torch.zeros(1, 2)
    assert build("mine:fixed", num_classes=9)(x).shape == (1, 3)
    assert build("mine:flexible", num_classes=9)(x).shape == (1, 9)
    torch.save({"weight": torch.ones(4, 2), "bias": torch.ones(4)}, packages / "w.pt")
    assert build("mine:flexible", checkpoint=packages / "w.pt")(x).tolist() == [[1, 1, 1, 1]]
    with pytest.raises(TTCError, match=r"mine:wrong must return a torch.nn.Module, got int"):
        build("mine:wrong")
    with pytest.raises(TTCError, match="mine:nothing: the module mine has no function 'nothing'"):
        build("mine:nothing")
    with pytest.raises(TTCError, match=r"yours.models:f: cannot import yours.models .*PYTHONPATH"):
        build("yours.models:f")


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_the_structure_needs_no_weights(packages: Path, package: str) -> None:
    (packages / f"{package}.py").write_text(TIMM if package == "timm" else TORCHVISION)
    name = "timm:tiny.gone" if package == "timm" else "torchvision:tiny_gone"
    assert isinstance(build(name, pretrained=False), StandardizedModel)


def test_a_package_that_is_missing_is_not_called_broken(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)  # Python's way to say that there is none
    with pytest.raises(TTCError, match=r"which is not installed: pip install 'timm>=1.0', or choose"):
        build("timm:x")
    (packages / "torchvision.py").write_text("import a_package_that_is_not_there")
    with pytest.raises(TTCError, match=r"which is installed but cannot be imported \(it needs a_package_that"):
        build("torchvision:x")


def test_without_a_network_the_hub_is_not_asked_again_and_again(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = types.ModuleType("huggingface_hub.constants")
    closed = "http://127.0.0.1:9"
    hub.ENDPOINT, hub.HF_HUB_OFFLINE = closed, False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", types.ModuleType("huggingface_hub"))
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", hub)
    monkeypatch.setattr("ttc.models.external.getproxies", dict)
    asking = "import sys\nhub = sys.modules['huggingface_hub.constants']\n"
    failing = TIMM.replace('raise OSError("no route to host")', 'raise OSError(f"offline: {hub.HF_HUB_OFFLINE}")')
    (packages / "timm.py").write_text(asking + failing)
    with pytest.raises(TTCError, match=r"cannot be downloaded \(offline: True\)"):
        build("timm:tiny.gone")
    assert hub.HF_HUB_OFFLINE is False


def test_a_function_that_fails_is_a_sentence(packages: Path) -> None:
    (packages / "mine.py").write_text("def wide(width): return None\n")
    with pytest.raises(TTCError, match=r"mine:wide failed \(TypeError: .*'width'\); it is called without arguments"):
        build("mine:wide")
    (packages / "unfinished.py").write_text("def f(:\n")
    with pytest.raises(TTCError, match=r"unfinished:f: cannot import unfinished \(SyntaxError: "):
        build("unfinished:f")
    (packages / "leaving.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(TTCError, match=r"leaving:f: cannot import leaving \(SystemExit: 3\)"):
        build("leaving:f")
    with pytest.raises(TTCError, match=r"expected package.module:function, got ':f'"):
        build(":f")


def test_own_model_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model_beside_me.py").write_text("from torch import nn\ndef f(): return nn.Linear(1, 1)\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert isinstance(build("model_beside_me:f"), torch.nn.Linear)
    assert sys.path == before
    sys.modules.pop("model_beside_me")
