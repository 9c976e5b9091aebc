"""Models of timm, torchvision and the user's own modules, with the input statistics that belong to their weights."""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.models.checkpoints import load_checkpoint
from ttc.models.standardize import InputStatistics, standardization


class StandardizedModel(nn.Module):
    """A network behind its input standardization, so that it takes images in [0, 1]; ``side`` is its intended size."""

    def __init__(self, network: nn.Module, statistics: InputStatistics | None, side: int | None = None) -> None:
        super().__init__()
        self.standardize = standardization(statistics)
        self.network = network
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.standardize(x))
        return logits


def timm_model(name: str, num_classes: int | None = None, checkpoint: Path | None = None) -> nn.Module:
    """``timm:NAME``: pretrained unless a checkpoint is given, with the mean and deviation of its configuration."""
    timm = _package("timm", f"timm:{name}")
    if not timm.is_model(name.split(".")[0]):
        near = ", ".join(timm.list_models(f"*{name.split('.')[0][:6]}*")[:5])
        raise TTCError(f"timm has no model {name!r}{f'; near: {near}' if near else ''}: see timm.list_models()")
    settings = {} if num_classes is None else {"num_classes": num_classes}
    try:
        network: nn.Module = timm.create_model(name, pretrained=checkpoint is None, **settings)
    except (OSError, RuntimeError) as error:
        raise _no_weights(f"timm:{name}", error) from error
    config = timm.data.resolve_model_data_config(network)
    if checkpoint:
        load_checkpoint(network, checkpoint)
    return StandardizedModel(network, (config["mean"], config["std"]), int(config["input_size"][-1]))


def torchvision_model(name: str, num_classes: int | None = None, checkpoint: Path | None = None) -> nn.Module:
    """``torchvision:NAME`` or ``torchvision:NAME@WEIGHTS`` (such as IMAGENET1K_V1), with the weights' statistics."""
    models = _package("torchvision", f"torchvision:{name}").models
    name, _, wanted = name.partition("@")
    if name not in models.list_models():
        near = ", ".join([known for known in models.list_models() if known.startswith(name[:6])][:5])
        raise TTCError(f"torchvision has no model {name!r}{f'; near: {near}' if near else ''}")
    choices = models.get_model_weights(name)
    if wanted and wanted not in choices.__members__:
        raise TTCError(f"torchvision's {name} has no weights {wanted!r}: choose {', '.join(choices.__members__)}")
    weights = choices[wanted or "DEFAULT"]
    settings = {} if num_classes is None else {"num_classes": num_classes}
    try:
        network: nn.Module = models.get_model(name, weights=None if checkpoint else weights, **settings)
    except (OSError, RuntimeError) as error:
        raise _no_weights(f"torchvision:{name}", error) from error
    except ValueError as error:  # torchvision refuses a head that differs from the weights'
        raise TTCError(f"torchvision:{name}: {error}; give a checkpoint for another number of classes") from error
    if checkpoint:
        load_checkpoint(network, checkpoint)
    preset = weights.transforms()
    return StandardizedModel(network, (preset.mean, preset.std), int(preset.crop_size[0]))


def import_model(address: str, num_classes: int | None = None, checkpoint: Path | None = None) -> nn.Module:
    """``package.module:function``: what the function returns, given ``num_classes`` if it takes that."""
    module_name, _, function_name = address.partition(":")
    build = getattr(_imported(module_name, address), function_name, None)
    if not callable(build):
        raise TTCError(f"{address}: the module {module_name} has no function {function_name!r}")
    takes = num_classes is not None and "num_classes" in inspect.signature(build).parameters
    model = build(num_classes=num_classes) if takes else build()
    if not isinstance(model, nn.Module):
        raise TTCError(f"{address} must return a torch.nn.Module, it returned {type(model).__name__}")
    return load_checkpoint(model, checkpoint) if checkpoint else model


def _imported(module_name: str, address: str) -> ModuleType:
    here = str(Path.cwd())
    sys.path.append(here)  # a console script does not see the directory it is called in
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise TTCError(
            f"{address}: cannot import {module_name} ({error}); run from its directory or set PYTHONPATH"
        ) from error
    finally:
        sys.path.remove(here)


def _package(name: str, asked: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken binary extension raises what it likes
        raise TTCError(
            f"{asked} needs the package {name}, which does not import here ({error}): "
            f"pip install 'test-time-clustering[{name}]', or take an architecture of ours"
        ) from error


def _no_weights(asked: str, error: Exception) -> TTCError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
    return TTCError(f"{asked}: the pretrained weights cannot be had ({reason}); give a checkpoint file instead")
