"""The quicker forms of a network: the same answers and gradients, and the network itself where a form will not do."""

import copy
import pickle
import shutil
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttc
from ttc.core import Classifier, copy_with_trainable_norms
from ttc.core import lean as lean_module
from ttc.fast.low_memory import FrozenConv, norm_relu, relu_
from ttc.fast.graph import in_place
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.wide_resnet import WideResNet

SHAPE = torch.Size([4, 3, 32, 32])


def networks() -> dict[str, Callable[[], nn.Module]]:
    return {
        "resnet20": lambda: CifarResNet(20),
        "wrn-16-4": lambda: WideResNet(16, 4),
    }


def gradients(model: Classifier, x: Tensor) -> list[Tensor]:
    logits = model(x).logits
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(logits.square().sum(), parameters))


@pytest.mark.parametrize("name", ["resnet20", "wrn-16-4"])
def test_a_quicker_form_answers_and_learns_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_module, "LARGE", 1 << 12)  # so that some layers are lean and some are not
    torch.manual_seed(0)
    network = networks()[name]().double()
    x = torch.rand(6, 3, 32, 32, dtype=torch.float64)
    plain, quick = copy_with_trainable_norms(Classifier(network)), copy_with_trainable_norms(Classifier(network))
    quick.quicken(SHAPE)
    assert quick._form is not None
    assert quick._form.run is not None
    assert quick._form.layout is torch.channels_last
    torch.testing.assert_close(quick(x).logits, plain(x).logits)
    for one, two in zip(gradients(quick, x), gradients(plain, x), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    "method", ["norm", "tent", "ttc", "t3a", "eta"]
)  # TIPI's direction is the sign of rounding noise
def test_adapters_answer_as_without(method: str) -> None:
    torch.manual_seed(0)
    network, stream = CifarResNet(20).double(), torch.rand(4, 12, 3, 32, 32, dtype=torch.float64)
    quick, plain = ttc.adapt(network, method), ttc.adapt(network, method)
    plain.model.quick = False
    for batch in stream:
        torch.testing.assert_close(quick(batch), plain(batch), atol=1e-6, rtol=1e-5)
    assert quick.model._form is not None
    assert plain.model._form is None


def test_small_batches_in_one_pass_keep_their_own_statistics() -> None:
    torch.manual_seed(0)
    model = copy_with_trainable_norms(Classifier(CifarResNet(20).double()))
    one, two = torch.rand(2, 5, 3, 32, 32, dtype=torch.float64)
    apart = [model(one), model(two * 0.3)]
    model.quicken(SHAPE)
    for found, expected in zip(model.each([one, two * 0.3]), apart, strict=True):
        torch.testing.assert_close(found.logits, expected.logits)
        torch.testing.assert_close(found.features, expected.features)
    assert all(layer.batches == 1 for layer in model._form.joined or []) if model._form else False


def test_lean_layers_equal_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_module, "LARGE", 1)
    torch.manual_seed(0)
    x = torch.randn(3, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.rand(2, 4, dtype=torch.float64).unbind()
    weight, bias = weight.clone().requires_grad_(True), bias.clone().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x, w, b: norm_relu(x, w, b, 1e-5), (x, weight, bias))
    assert torch.autograd.gradcheck(lambda x: relu_(x * 1), (x,))
    conv = nn.Conv2d(4, 5, 3, stride=2, padding=1).double().requires_grad_(False)
    torch.testing.assert_close(FrozenConv(conv)(x), conv(x))
    assert torch.autograd.gradcheck(FrozenConv(conv), (x,))
    expected = F.relu(F.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5))
    torch.testing.assert_close(norm_relu(x, weight, bias, 1e-5), expected)


class Views(nn.Module):
    """Flattens with ``view``, which channels last does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.conv(x)))
        answer: Tensor = self.fc(y.view(len(x), -1))
        return answer


class Decides(Views):
    """Looks at values, so a trace cannot follow it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if bool(x.mean() > 0.5) else x * 2)


class Shares(nn.Module):
    """Reads what a normalization returned twice, and normalizes twice with one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        z = self.norm(F.relu(y) + y)
        answer: Tensor = self.fc((F.relu(z) + self.norm(z.abs())).mean((2, 3)))
        return answer


@pytest.mark.parametrize("kind", [Views, Decides, Shares])
def test_awkward_networks_answer_as_they_are(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    network, stream = kind(), torch.rand(3, 8, 3, 8, 8)
    quick, plain = ttc.adapt(network, "ttc"), ttc.adapt(network, "ttc")
    plain.model.quick = False
    for batch in stream:
        torch.testing.assert_close(quick(batch), plain(batch), atol=1e-4, rtol=1e-4)


def test_hooks_of_inner_layers_are_kept() -> None:
    network = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), nn.Flatten())
    network[0].register_forward_hook(lambda module, inputs, output: output * 2)
    assert in_place(network.eval()) is None


def test_a_shape_that_will_not_do_ends_the_form() -> None:
    class Small(Views):
        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.norm(self.conv(x)))
            y = y.view(len(x), -1) if x.shape[-1] == 8 else F.adaptive_avg_pool2d(y, 8).flatten(1)
            answer: Tensor = self.fc(y)
            return answer

    torch.manual_seed(0)
    network = Small()
    quick, plain = ttc.adapt(network, "tent"), ttc.adapt(network, "tent")
    plain.model.quick = False
    for batch in (torch.rand(8, 3, 12, 12), torch.rand(8, 3, 8, 8), torch.rand(8, 3, 12, 12)):
        torch.testing.assert_close(quick(batch), plain(batch), atol=1e-5, rtol=1e-5)


def test_the_form_does_not_depend_on_the_images() -> None:
    torch.manual_seed(0)
    network, batch = CifarResNet(20), torch.rand(8, 3, 32, 32)
    one, two = ttc.adapt(network, "ttc"), ttc.adapt(network, "ttc")
    with pytest.raises(ttc.TTCError, match="not finite"):
        one(torch.full_like(batch, 3e38))
    assert torch.equal(one(batch), two(batch))


def test_copies_find_a_form_of_their_own() -> None:
    torch.manual_seed(0)
    adapter, batch = ttc.adapt(CifarResNet(20), "ttc"), torch.rand(8, 3, 32, 32)
    adapter(batch)
    for copied in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        assert vars(copied.model)["_form"] is None
        answer = copied(batch)
        assert vars(copied.model)["_form"] is not None
        assert torch.equal(answer, copy.deepcopy(adapter)(batch))


def test_group_normalization_stays_in_its_layout() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    adapter = ttc.adapt(network, "tent")
    assert adapter(torch.rand(8, 3, 9, 9)).isfinite().all()  # channels last would end the process
    assert adapter.model._form is not None
    assert adapter.model._form.layout is torch.contiguous_format


def test_autocast_answers_nearly_alike() -> None:
    torch.manual_seed(0)
    network, batch = CifarResNet(20), torch.rand(16, 3, 32, 32)
    half, full = ttc.adapt(network, "ttc", autocast=True)(batch), ttc.adapt(network, "ttc")(batch)
    assert half.dtype == torch.float32
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, atol=0.2, rtol=0.1)
    adapter = ttc.adapt(network, "ttc")
    with torch.autocast("cpu", torch.bfloat16):  # the caller's own holds too
        assert not torch.equal(adapter(batch), full)


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))), reason="no C++ compiler is installed")
def test_compiled_answers_alike() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    )
    compiled, plain = ttc.adapt(network, "ttc", compile=True), ttc.adapt(network, "ttc")
    for batch in torch.rand(3, 6, 3, 8, 8):
        torch.testing.assert_close(compiled(batch), plain(batch), atol=1e-4, rtol=1e-4)
    with pytest.raises(ttc.TTCError, match="got shape"):
        compiled(torch.rand(6, 2, 8, 8))


def test_without_a_compiler_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(network: nn.Module) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            raise RuntimeError("no C++ compiler was found\nand a trace")

        return run

    monkeypatch.setattr("ttc.core.classifier.compiled", fails)
    adapter = ttc.adapt(CifarResNet(20), "ttc", compile=True)
    with pytest.raises(
        ttc.TTCError, match=r"cannot be compiled here, leave out compile=True: no C\+\+ compiler was found$"
    ):
        adapter(torch.rand(4, 3, 32, 32))
