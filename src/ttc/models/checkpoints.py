"""Weights from files: read without running anything in them, unwrap_state_dict, and matched with a model key by key."""

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
from ttc.models.zoo import MODELS

StateDict = dict[str, Tensor]
WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params")
PREFIXES = ("module.", "model.", "_orig_mod.", "network.")
SHOWN = 3  # keys of a kind that a message lists
# training scripts store accuracies as NumPy numbers: rebuilding one runs no code of the file's choice
_NUMBERS: list[Any] = [np.dtype, *(type(np.dtype(code)) for code in "?bBhHiIlLqQefd")]
_REBUILD: Any = np.float64(0).__reduce__()[0]
_NUMBERS += [(_REBUILD, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]  # its old and new address


def read_state_dict(path: Path) -> StateDict:
    """The tensors in a checkpoint file by name, out of wrappers such as ``{"state_dict": …}`` and common prefixes."""
    return unwrap_state_dict(read_file(path), path)


def read_file(path: Path) -> object:
    """The content of a checkpoint file: tensors, numbers and containers, never code."""
    if not path.is_file():
        raise TTCError(f"there is no checkpoint {path}: give the path of a .pt, .pth, .th or .safetensors file")
    if path.stat().st_size == 0:
        raise TTCError(f"the checkpoint {path} is empty: fetch or copy it again")
    with path.open("rb") as file:
        head = file.read(64).lstrip().lower()
    if head.startswith((b"<!doctype", b"<html")):
        raise TTCError(f"{path} is a web page, not a checkpoint: the download went wrong, fetch it again")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)


def unwrap_state_dict(content: object, path: Path) -> StateDict:
    """The innermost mapping of names to tensors in ``content``, without the prefixes that every name carries.

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
            f"{path} holds no weights: expected a state dict (names and tensors), plain or under 'state_dict'"
        )
    shared = _shared_prefix(list(tensors))
    return {key.removeprefix(shared): value for key, value in tensors.items()}


def load_checkpoint(model: nn.Module, path: Path) -> nn.Module:
    """``model`` with the weights of ``path``; every key and shape must fit, else the error says which do not."""
    load_state_dict(model, read_state_dict(path), str(path))
    return model


def load_state_dict(model: nn.Module, state: StateDict, where: str) -> None:
    """Copy ``state`` into ``model``, or say what does not fit and which architecture of the zoo would."""
    bare = state
    shared = _shared_prefix(list(model.state_dict()))  # a wrapped model has the prefix that reading took away
    state = {shared + key: value for key, value in bare.items()}
    missing, unexpected, misshapen = _difference(_shapes(model.state_dict()), _shapes(state))
    if missing or unexpected or misshapen:
        parts = [
            f"{len(keys)} {kind} ({', '.join(keys[:SHOWN])}{', …' if len(keys) > SHOWN else ''})"
            for kind, keys in (("missing", missing), ("unexpected", unexpected), ("wrongly shaped", misshapen))
            if keys
        ]
        fits = matching_architectures(bare)
        way = f"it fits: {', '.join(fits)}" if fits else "no architecture of the zoo fits it: check model and file"
        raise TTCError(f"{where} does not fit the model: {'; '.join(parts)}; {way}")
    model.load_state_dict(state, strict=False)  # only num_batches_tracked may be absent, checked above


def matching_architectures(state: StateDict) -> list[str]:
    """The zoo's architectures whose keys and shapes are those of ``state``."""
    classes = head_classes(state)
    shapes = _shapes(state)
    names = []
    for name, build in MODELS.items():
        with torch.device("meta"):
            candidate = build(num_classes=classes) if classes else build()
        if not any(_difference(_shapes(candidate.state_dict()), shapes)):
            names.append(name)
    return names


def head_classes(state: StateDict) -> int | None:
    """The number of classes of the linear head in ``state``, for the head names of the zoo."""
    head = next((state[key] for key in ("fc.weight", "linear.weight") if key in state), None)
    return int(head.shape[0]) if head is not None and head.ndim == 2 else None


def _shared_prefix(keys: list[str]) -> str:
    """The chain of ``PREFIXES`` with which every key begins."""
    found = ""
    while keys and (more := next((p for p in PREFIXES if all(key.startswith(found + p) for key in keys)), "")):
        found += more
    return found


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in state.items()}


def _difference(
    wanted: dict[str, tuple[int, ...]], given: dict[str, tuple[int, ...]]
) -> tuple[list[str], list[str], list[str]]:
    """Missing, unexpected and wrongly shaped keys; old files lack the batch counters, which nothing here reads."""
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
        raise TTCError(f"the checkpoint {path} is damaged ({error}): fetch or copy it again") from error


def _read_pickle(path: Path) -> object:
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the unpickler raise whatever it stumbles over
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and found:
            raise TTCError(
                f"{path} holds pickled code ({found[1]}), which could do anything when loaded, so it is refused: "
                "save the weights alone where you trust the file, torch.save(model.state_dict(), …) or .safetensors"
            ) from None
        raise TTCError(f"the checkpoint {path} cannot be read ({_sentence(error)}): fetch or copy it again") from error


def _sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
