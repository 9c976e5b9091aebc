"""The adaptation file format: what changed, in one small safetensors file bound to its model, method and options."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ttc import __version__
from ttc.core.adapter_config import (
    AdapterConfig,
    are_options,
    as_argument,
    config_of,
    differing_option,
    is_description,
    option_text,
)
from ttc.core.state import PLAIN, State, check_state, model_digest, tensors_digest
from ttc.errors import TTCError
from ttc.files import atomic

if TYPE_CHECKING:
    from ttc.core.adapter import Adapter

FORMAT = "ttc-adaptation-2"


@dataclass(frozen=True)
class SavedAdaptation:
    """The contents of an adaptation file.

    Args:
        path: The file.
        method: The name of the method that saved it.
        options: Its options, those without a JSON value described in words.
        source: The digest of the model before adaptation.
        state: What changed since.
        version: The version of ttc that wrote it.
    """

    path: Path
    method: str
    options: Mapping[str, Any]
    source: str
    state: State
    version: str

    def config(self, given: Mapping[str, Any]) -> AdapterConfig:
        """Return how to build the adapter again, with the options that a file cannot contain taken from ``given``."""
        for name, value in self.options.items():
            if is_description(value) and name not in given:
                raise TTCError(
                    f"{self.path} was saved with {name}={option_text(value)}, which a file cannot contain; "
                    f"pass it again as {name}=..."
                )
        options = {name: given.get(name, as_argument(value)) for name, value in self.options.items()}
        return AdapterConfig(self.method, {**options, **given})


def save(adapter: "Adapter", path: Path) -> None:
    """Write what changed in ``adapter`` to ``path``, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    config = config_of(adapter)
    metadata = {
        "format": FORMAT,
        "version": __version__,
        "method": config.method,
        "options": json.dumps(config.described()),
        "source": source_digest(adapter),
        "state": json.dumps(_encoded(_changed(adapter.state_dict(), adapter.initial_tensors), "", tensors)),
    }
    metadata["digest"] = _digest(metadata, tensors)
    try:
        with atomic(path) as part:
            save_file(tensors, part, metadata)
    except (OSError, SafetensorError) as error:  # the second on a full disk
        raise TTCError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def read(path: Path) -> SavedAdaptation:
    """Read a saved adaptation.

    Raises:
        TTCError: If the file is missing, damaged, of another format or something else.
    """
    if not path.is_file():
        raise TTCError(f"there is no saved adaptation {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    except (SafetensorError, OSError, ValueError) as error:
        raise TTCError(f"{path} is damaged or no saved adaptation ({error}); save it again") from error
    if metadata.get("format") != FORMAT:
        raise TTCError(
            f"{path} has the format {metadata.get('format')}, this version reads {FORMAT}; adapt again and save anew"
        )
    if metadata.pop("digest", None) != _digest(metadata, tensors):
        raise TTCError(f"{path} is damaged: its contents do not match their checksum; save it again")
    try:
        used: set[str] = set()
        state = _decoded(_json(metadata["state"]), tensors, used)
        options = _json(metadata["options"])
        saved = SavedAdaptation(path, metadata["method"], options, metadata["source"], state, metadata["version"])
    except KeyError as error:
        raise TTCError(f"{path} is damaged: it has no {str(error)[:80]}; save it again") from error
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:120]
        raise TTCError(f"{path} is damaged: its contents cannot be decoded ({reason}); save it again") from error
    if used != set(tensors) or not are_options(options):
        raise TTCError(f"{path} is damaged: it contains tensors or options that no adaptation has; save it again")
    return saved


def state_digest(adapter: "Adapter") -> str:
    """Compute the SHA-256 of all that decides what an adapter does next: model, method, options and state."""
    tensors: dict[str, Tensor] = {}
    config = config_of(adapter)
    state = _encoded(adapter.state_dict(), "", tensors)
    return tensors_digest(tensors, json.dumps([model_digest(adapter.model), config.method, config.described(), state]))


def restore(adapter: "Adapter", saved: SavedAdaptation) -> None:
    """Load a saved adaptation into an adapter of the same model, method and options; a failure changes nothing."""
    config = config_of(adapter)
    if config.method != saved.method:
        raise TTCError(f"{saved.path} was saved by the method '{saved.method}', this adapter is '{config.method}'")
    if different := differing_option(saved.options, config):
        name, wanted, found = different
        raise TTCError(
            f"{saved.path} was saved with {name}={wanted}, this adapter has {name}={found}; pass the same options"
        )
    if source_digest(adapter) != saved.source:
        raise TTCError(
            f"{saved.path} was saved for another model: architecture or weights differ; pass the model it adapted"
        )
    before = adapter.state_dict()
    adapter.reset()  # a file contains only what differs from the initial state
    try:
        check_state(adapter, saved.state)
        adapter.load_state_dict(saved.state)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        adapter.load_state_dict(before)
        reason = str(error).partition("\n")[0][:200]
        raise TTCError(f"{saved.path} does not fit the adapter it names ({reason}); save it again") from error


def source_digest(adapter: "Adapter") -> str:
    """Return the digest of the model before adaptation, parameters and buffers."""
    tensors = {
        **dict(adapter.model.named_parameters()),
        **dict(adapter.model.named_buffers()),
        **adapter.initial_tensors,
    }
    return tensors_digest(tensors)


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    return tensors_digest(tensors, json.dumps(metadata, sort_keys=True))


def _changed(state: State, start: Mapping[str, Tensor]) -> State:
    """Return the state without the model's tensors that equal the initial ones: kilobytes, whatever the model."""
    if not isinstance(state, dict):
        return state
    changed = {}
    for key, value in state.items():
        if key == "model":
            changed[key] = {name: tensor for name, tensor in value.items() if not torch.equal(tensor, start[name])}
        else:
            changed[key] = _changed(value, start)
    return changed


def _encoded(state: State, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return the state as JSON values; tensors are added to ``tensors`` under their path."""
    if isinstance(state, Tensor):
        tensors[path] = state.cpu().contiguous()
        return {"tensor": path}
    if isinstance(state, dict):
        return {"dict": [[key, _encoded(item, f"{path}/{key}".lstrip("/"), tensors)] for key, item in state.items()]}
    if isinstance(state, list | tuple):
        kind = "list" if isinstance(state, list) else "tuple"
        return {kind: [_encoded(item, f"{path}/{index}", tensors) for index, item in enumerate(state)]}
    return state


def _decoded(value: Any, tensors: Mapping[str, Tensor], used: set[str]) -> State:
    """Return the state that :func:`_encoded` encoded; the names of its tensors are added to ``used``.

    Raises:
        KeyError, TypeError, ValueError: If it is no such encoding.
    """
    if not isinstance(value, dict):
        if not isinstance(value, PLAIN):
            raise TypeError("a state contains no bare list")
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        used.add(content)
        return tensors[content]
    if kind == "dict":
        return {key: _decoded(item, tensors, used) for key, item in content}
    if kind not in {"list", "tuple"} or not isinstance(content, list):
        raise ValueError(f"unknown kind {kind[:40]!r}")
    items = [_decoded(item, tensors, used) for item in content]
    return items if kind == "list" else tuple(items)


def _json(text: str) -> Any:
    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not finite")

    return json.loads(text, parse_constant=no_constant)
