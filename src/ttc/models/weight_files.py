"""Checkpoint files: read without executing code, unwrapped, and matched with a model key by key."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.models.renaming import StateDict, common_name, rename_keys, shared_prefix
from ttc.models.zoo import MODELS

WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params")
SHOWN = 3  # keys of each kind listed in a message
# training scripts store accuracies as NumPy scalars: rebuilding one executes no code chosen by the file
_NUMBERS: list[Any] = [np.dtype, *(type(np.dtype(code)) for code in "?bBhHiIlLqQefd")]
_REBUILD: Any = np.float64(0).__reduce__()[0]
_NUMBERS += [(_REBUILD, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]  # its old and new address


def read_state_dict(path: Path) -> StateDict:
    """Read the state dict in a checkpoint file, without wrappers such as ``{"state_dict": …}`` and common prefixes."""
    return unwrap_state_dict(read_file(path), path)


def read_file(path: Path) -> object:
    """Read the content of a checkpoint file: tensors, numbers and containers, never code."""
    if not path.is_file():
        raise TTCError(f"there is no checkpoint {path}: give the path of a .pt, .pth, .th or .safetensors file")
    if path.stat().st_size == 0:
        raise TTCError(f"the checkpoint {path} is empty: download or copy it again")
    with path.open("rb") as file:
        head = file.read(64).lstrip().lower()
    if head.startswith((b"<!doctype", b"<html")):
        raise TTCError(f"{path} is a web page, not a checkpoint: the download failed, download it again")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)


def unwrap_state_dict(content: object, path: Path) -> StateDict:
    """Return the innermost mapping of names to tensors in ``content``, without the prefixes shared by all names.

    >>> sorted(unwrap_state_dict({"epoch": 3, "state_dict": {"module.fc.bias": torch.zeros(2)}}, Path("x.pt")))
    ['fc.bias']
    """
    while isinstance(content, Mapping) and not any(isinstance(value, Tensor) for value in content.values()):
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise TTCError(
            f"{path} contains no weights: expected a state dict (names and tensors), plain or in 'state_dict'"
        )
    shared = shared_prefix(tensors)
    return {key.removeprefix(shared): value for key, value in tensors.items()}


def load_checkpoint(model: nn.Module, path: Path) -> nn.Module:
    """Load the weights of a checkpoint file into a model, in place.

    Wrappers such as ``{"state_dict": …}`` and prefixes such as ``module.`` are removed, and keys that follow another
    known naming scheme (:data:`ttc.models.renaming.RENAMINGS`) are renamed; no code is executed.

    Args:
        model: The model to change.
        path: A ``.pt``, ``.pth``, ``.th`` or ``.safetensors`` file.

    Returns:
        ``model`` itself.

    Raises:
        TTCError: The file is missing, damaged or contains code, or its keys or shapes do not fit the model.
    """
    load_state_dict(model, read_state_dict(path), str(path))
    return model


def load_state_dict(model: nn.Module, state: StateDict, where: str) -> None:
    """Copy ``state`` into ``model``; if it does not fit, the error names the keys and the architectures that would."""
    wanted = _shapes(model.state_dict())
    shared = shared_prefix(wanted)  # a wrapped model has the prefix that reading removed
    named = _best_names({shared + key: value for key, value in state.items()}, wanted)
    missing, unexpected, misshapen = _difference(wanted, _shapes(named))
    if missing or unexpected or misshapen:
        parts = [
            f"{len(keys)} {kind} ({', '.join(keys[:SHOWN])}{', …' if len(keys) > SHOWN else ''})"
            for kind, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
            if keys
        ]
        raise TTCError(f"{where} does not fit the model: {'; '.join(parts)}; {_advice(matching_architectures(state))}")
    model.load_state_dict(named, strict=False)  # only num_batches_tracked may be missing, checked above


def matching_architectures(state: StateDict) -> list[str]:
    """Return the names in ``MODELS`` whose parameters are those of ``state``, by any known naming scheme.

    More than one fits where architectures differ in what has no parameters, such as strides: the file cannot tell.
    """
    classes = head_classes(state)
    names = []
    for name, build in MODELS.items():
        with torch.device("meta"):
            wanted = _shapes(build(num_classes=classes).state_dict())
        if not any(_difference(wanted, _shapes(_best_names(state, wanted)))):
            names.append(name)
    return names


def head_classes(state: StateDict) -> int | None:
    """Return the number of classes of the linear head in ``state``; None without a head of a known naming scheme."""
    head = next((value for key, value in state.items() if common_name(key) == "fc.weight"), None)
    return int(head.shape[0]) if head is not None and head.ndim == 2 else None


def _advice(fitting: list[str]) -> str:
    if not fitting:
        return "it fits no built-in architecture: check the model and the file"
    if len(fitting) == 1:
        return f"it fits {fitting[0]}"
    variants = ", ".join(f"{name} ({MODELS[name].variant})" if MODELS[name].variant else name for name in fitting)
    return f"it fits {variants}: the file cannot tell which, so measure both with ttc inspect --data"


def _best_names(state: StateDict, wanted: dict[str, tuple[int, ...]]) -> StateDict:
    """Return ``state`` with its own keys or with renamed ones, whichever leaves fewer differences."""
    renamed = rename_keys(state, wanted)
    problems = [sum(map(len, _difference(wanted, _shapes(names)))) for names in (state, renamed)]
    return renamed if problems[1] < problems[0] else state


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in state.items()}


def _difference(
    wanted: dict[str, tuple[int, ...]], given: dict[str, tuple[int, ...]]
) -> tuple[list[str], list[str], list[str]]:
    """Return missing, unexpected and misshapen keys; old files lack the batch counters, which are never read."""
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in wanted]
    misshapen = [
        f"{key} {'x'.join(map(str, given[key]))} for {'x'.join(map(str, wanted[key]))}"
        for key in wanted
        if key in given and given[key] != wanted[key]
    ]
    return missing, unexpected, misshapen


def _read_safetensors(path: Path) -> StateDict:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise TTCError(f"the checkpoint {path} is damaged ({error}): download or copy it again") from error


def _read_pickle(path: Path) -> object:
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the unpickler raise any exception
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and found:
            raise TTCError(
                f"{path} contains pickled code ({found[1]}), which is rejected because loading it could run anything: "
                "if you trust the file, save its weights alone with torch.save(model.state_dict(), …)"
            ) from None
        raise TTCError(
            f"the checkpoint {path} cannot be read ({_sentence(error)}): download or copy it again"
        ) from error


def _sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
