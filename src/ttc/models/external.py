"""Models of timm, torchvision and the user's own modules, with the input statistics of their weights."""

import importlib
import inspect
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from difflib import SequenceMatcher
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from torch import Tensor, nn

from ttc.errors import TTCError, unknown
from ttc.models.import_problems import find_import_problem
from ttc.models.standardize import InputStatistics, standardization
from ttc.models.weight_files import load_checkpoint

REQUIREMENTS = {"timm": "timm>=1.0", "torchvision": "torchvision>=0.19"}  # the extras of these names


class StandardizedModel(nn.Module):
    """A network with input standardization, so that it takes images in [0, 1].

    Args:
        network: A classifier of standardized images.
        statistics: Their (mean, standard deviation) per channel; None for images in [0, 1].
        side: The height and width of its images in pixels.
        resize: The length of the shorter side before the centre crop; by default 256/224 of the side.
        interpolation: ``"bilinear"`` or ``"bicubic"``, how images are resized.
    """

    def __init__(
        self,
        network: nn.Module,
        statistics: InputStatistics | None,
        side: int | None = None,
        resize: int | None = None,
        interpolation: str = "bilinear",
    ) -> None:
        super().__init__()
        self.standardize = standardization(statistics)
        self.network = network
        self.side, self.resize, self.interpolation = side, resize, interpolation

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.standardize(x))
        return logits


def timm_model(
    name: str, num_classes: int | None = None, checkpoint: Path | None = None, pretrained: bool = True
) -> nn.Module:
    """Build ``timm:NAME`` with the input statistics of its configuration, pretrained unless a checkpoint is given."""
    timm = _import_package("timm", f"timm:{name}")
    if not timm.is_model(name.split(".")[0]):
        raise _unknown_model("timm", name, timm.list_models())
    settings = {} if num_classes is None else {"num_classes": num_classes}
    pretrained = pretrained and checkpoint is None
    try:
        with _no_retries_without_network() if pretrained else nullcontext():
            network: nn.Module = timm.create_model(name, pretrained=pretrained, **settings)
    except (OSError, RuntimeError) as error:
        raise _no_weights(f"timm:{name}", error) from error
    config = timm.data.resolve_model_data_config(network)
    if checkpoint:
        load_checkpoint(network, checkpoint)
    side = int(config["input_size"][-1])
    resize = round(side / config.get("crop_pct", 0.875))
    return StandardizedModel(
        network, (config["mean"], config["std"]), side, resize, _interpolation(config.get("interpolation"))
    )


def torchvision_model(
    name: str, num_classes: int | None = None, checkpoint: Path | None = None, pretrained: bool = True
) -> nn.Module:
    """Build ``torchvision:NAME`` or ``torchvision:NAME@WEIGHTS`` (such as IMAGENET1K_V1) with its input statistics."""
    models = _import_package("torchvision", f"torchvision:{name}").models
    name, _, wanted = name.partition("@")
    if name not in models.list_models():
        raise _unknown_model("torchvision", name, models.list_models())
    choices = models.get_model_weights(name)
    if wanted and wanted not in choices.__members__:
        raise unknown(f"weights of torchvision:{name}", wanted, choices.__members__)
    weights = choices[wanted or "DEFAULT"]
    settings = {} if num_classes is None else {"num_classes": num_classes}
    try:
        chosen = weights if pretrained and checkpoint is None else None
        network: nn.Module = models.get_model(name, weights=chosen, **settings)
    except (OSError, RuntimeError) as error:
        raise _no_weights(f"torchvision:{name}", error) from error
    except ValueError as error:  # torchvision rejects a head that differs from that of the weights
        raise TTCError(f"torchvision:{name}: {error}; another number of classes needs a checkpoint") from error
    if checkpoint:
        load_checkpoint(network, checkpoint)
    preset = weights.transforms()
    resize = getattr(preset, "resize_size", None)
    return StandardizedModel(
        network,
        (preset.mean, preset.std),
        int(preset.crop_size[0]),
        int(resize[0]) if resize else None,
        _interpolation(getattr(getattr(preset, "interpolation", None), "value", None)),
    )


def import_model(address: str, num_classes: int | None = None, checkpoint: Path | None = None) -> nn.Module:
    """Call ``package.module:function``, with ``num_classes`` if it takes that argument, and return its model."""
    build = import_callable(address)
    try:
        takes = num_classes is not None and "num_classes" in inspect.signature(build).parameters
        model = build(num_classes=num_classes) if takes else build()
    except TTCError:
        raise
    except Exception as error:  # a user's function raises any exception
        raise TTCError(
            f"{address} failed ({type(error).__name__}: {error}); it is called without arguments, or with num_classes "
            "if it has that parameter"
        ) from error
    if not isinstance(model, nn.Module):
        raise TTCError(f"{address} must return a torch.nn.Module, got {type(model).__name__}")
    return load_checkpoint(model, checkpoint) if checkpoint else model


def import_callable(address: str) -> Callable[..., Any]:
    """Import a user's function; this runs the code of its module.

    Args:
        address: ``package.module:function``; modules in the current directory are found too.

    Returns:
        The function, or whatever callable has that name.

    Raises:
        TTCError: If the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = address.partition(":")
    if not module_name or not function_name:
        raise TTCError(f"expected package.module:function, got '{address}'")
    here = str(Path.cwd())
    sys.path.append(here)  # a console script does not import from the current directory
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TTCError(
            f"{address}: cannot import {module_name} ({error}); run from its directory or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # a user's module raises any exception, a script exits
        raise TTCError(f"{address}: cannot import {module_name} ({type(error).__name__}: {error})") from error
    finally:
        sys.path.remove(here)
    if not hasattr(module, function_name):
        raise TTCError(f"{address}: the module {module_name} has no function {function_name!r}")
    function = getattr(module, function_name)
    if not callable(function):
        raise TTCError(f"{address} must be a function, it is {type(function).__name__}")
    found: Callable[..., Any] = function
    return found


def _interpolation(name: object) -> str:
    return "bicubic" if name == "bicubic" else "bilinear"


def _import_package(name: str, spec: str) -> ModuleType:
    problem = find_import_problem(name, REQUIREMENTS[name])
    if problem is None:
        return importlib.import_module(name)
    what = f"is installed but cannot be imported ({problem.reason})" if problem.broken else f"is {problem.reason}"
    raise TTCError(
        f"{spec} needs the package {name}, which {what}: {problem.advice}, or choose a built-in architecture"
    )


@contextmanager
def _no_retries_without_network() -> Iterator[None]:
    """Tell the model hub that there is no network: it would retry for a minute, and finds cached weights at once."""
    try:
        constants: Any = importlib.import_module("huggingface_hub.constants")
        host, port = urlsplit(constants.ENDPOINT).hostname, urlsplit(constants.ENDPOINT).port
        offline = constants.HF_HUB_OFFLINE or not (getproxies() or _is_reachable(host, port or 443))
    except (ImportError, AttributeError, ValueError):  # another version of the hub's library: let it retry
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, offline
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_reachable(host: str | None, port: int) -> bool:
    try:
        socket.create_connection((host or "", port), timeout=5).close()
    except OSError:
        return False
    return True


def _unknown_model(package: str, name: str, known: list[str]) -> TTCError:
    """Make the error for an unknown model; these packages have too many to list, so only the most similar are."""
    similar = sorted(known, key=lambda other: (-_similarity(other, name), other))[:8]
    return unknown(f"{package} model", name, [*similar, "…"] if len(known) > len(similar) else similar)


def _similarity(one: str, other: str) -> float:
    """Compare names without their order of characters first: a swapped digit is the most common mistake."""
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other)) + SequenceMatcher(None, one, other).ratio()


def _no_weights(spec: str, error: Exception) -> TTCError:
    reason = (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0][:160]
    return TTCError(f"{spec}: the pretrained weights cannot be downloaded ({reason}); give a checkpoint file instead")
