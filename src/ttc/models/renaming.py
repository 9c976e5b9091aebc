"""The naming schemes of public checkpoints, as one table of renamings to common names.

The keys of a checkpoint and those of a model are both translated to the common names, and matched there. So a scheme
is stated once, whatever model it is loaded into, and a renaming never applies unless both sides agree.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

StateDict = dict[str, Tensor]
PREFIXES = ("module.", "model.", "_orig_mod.", "network.", "net.", "backbone.")
"""What training code puts before every key: DataParallel, wrappers of the model, torch.compile, …"""


class Renaming(NamedTuple):
    """A part of the keys of a scheme, as a regular expression, and its common name."""

    scheme: str
    pattern: str
    common: str | Callable[[re.Match[str]], str]


def _block(stage: str, index: int, rest: str) -> str:
    return f"layer{stage}.{index}.{rest}"


RENAMINGS: tuple[Renaming, ...] = (
    # Caffe and Keras before 2.2.5: res4b_branch2a, bn4b_branch2a; branch1 is the shortcut
    Renaming("caffe", r"^bn_conv1\.", "bn1."),
    Renaming(
        "caffe",
        r"^(res|bn)([2-5])([a-z])_branch2([abc])\.",
        lambda m: _block(
            str(int(m[2]) - 1), ord(m[3]) - 97, f"{'conv' if m[1] == 'res' else 'bn'}{'abc'.index(m[4]) + 1}."
        ),
    ),
    Renaming(
        "caffe",
        r"^(res|bn)([2-5])([a-z])_branch1\.",
        lambda m: _block(str(int(m[2]) - 1), ord(m[3]) - 97, f"shortcut.{int(m[1] == 'bn')}."),
    ),
    # Keras today: conv4_block2_1_conv, conv4_block2_1_bn; number 0 is the shortcut
    Renaming("keras", r"^conv1_(conv|bn)\.", lambda m: f"{m[1]}1."),
    Renaming(
        "keras",
        r"^conv([2-5])_block(\d+)_0_(conv|bn)\.",
        lambda m: _block(str(int(m[1]) - 1), int(m[2]) - 1, f"shortcut.{int(m[3] == 'bn')}."),
    ),
    Renaming(
        "keras",
        r"^conv([2-5])_block(\d+)_([123])_(conv|bn)\.",
        lambda m: _block(str(int(m[1]) - 1), int(m[2]) - 1, f"{m[4]}{m[3]}."),
    ),
    # transformers: resnet.encoder.stages.2.layers.1.layer.0.convolution
    Renaming("transformers", r"^(?:resnet\.)?embedder\.embedder\.convolution\.", "conv1."),
    Renaming("transformers", r"^(?:resnet\.)?embedder\.embedder\.normalization\.", "bn1."),
    Renaming(
        "transformers",
        r"^(?:resnet\.)?encoder\.stages\.(\d)\.layers\.(\d+)\.shortcut\.(convolution|normalization)\.",
        lambda m: _block(str(int(m[1]) + 1), int(m[2]), f"shortcut.{int(m[3] == 'normalization')}."),
    ),
    Renaming(
        "transformers",
        r"^(?:resnet\.)?encoder\.stages\.(\d)\.layers\.(\d+)\.layer\.(\d)\.(convolution|normalization)\.",
        lambda m: _block(str(int(m[1]) + 1), int(m[2]), f"{'conv' if m[4] == 'convolution' else 'bn'}{int(m[3]) + 1}."),
    ),
    Renaming("transformers", r"^classifier\.1\.", "fc."),
    # residual branches as one Sequential: conv4_x.1.residual_function.3
    Renaming("sequential", r"^conv1\.([01])\.", lambda m: f"{('conv', 'bn')[int(m[1])]}1."),
    Renaming(
        "sequential",
        r"^conv([2-5])_x\.(\d+)\.residual_function\.([0-7])\.",
        lambda m: _block(str(int(m[1]) - 1), int(m[2]), f"{('conv', 'bn')[int(m[3]) % 3]}{int(m[3]) // 3 + 1}."),
    ),
    Renaming("sequential", r"^conv([2-5])_x\.(\d+)\.", lambda m: _block(str(int(m[1]) - 1), int(m[2]), "")),
    # shortcuts: downsample in torchvision and timm, shortcut in most CIFAR code; convShortcut in wide ResNets
    Renaming("shortcut", r"\.(?:downsample|shortcut|skip)\.(?:0|conv)\.", ".shortcut.0."),
    Renaming("shortcut", r"\.(?:downsample|shortcut|skip)\.(?:1|bn|norm)\.", ".shortcut.1."),
    Renaming("shortcut", r"\.(?:convShortcut|downsample|shortcut|skip)\.weight$", ".shortcut.weight"),
    # heads: fc in torchvision and timm, linear in CIFAR code, fc1000 in Caffe, predictions in Keras
    Renaming(
        "head", r"^(?:linear|classifier|head|head\.fc|last_linear|logits|output|fc1000|predictions)\.(?=\w+$)", "fc."
    ),
)
"""Every known scheme; later renamings see the result of earlier ones."""


@lru_cache(maxsize=1 << 14)
def common_name(key: str) -> str:
    """Translate the key of any known scheme to its common name.

    >>> common_name("layer2.0.downsample.1.running_mean"), common_name("bn2a_branch2b.weight")
    ('layer2.0.shortcut.1.running_mean', 'layer1.0.bn2.weight')
    """
    for _, pattern, common in RENAMINGS:
        key = re.sub(pattern, common, key)
    return key


def shared_prefix(keys: Iterable[str]) -> str:
    """Return the chain of ``PREFIXES`` with which every key begins.

    >>> shared_prefix(["module.model.fc.weight", "module.model.fc.bias"])
    'module.model.'
    """
    names, found = list(keys), ""
    while names and (more := next((p for p in PREFIXES if all(key.startswith(found + p) for key in names)), "")):
        found += more
    return found


def rename_keys(state: StateDict, wanted: Iterable[str]) -> StateDict:
    """Give the tensors of ``state`` the names in ``wanted`` that have the same common name; others keep theirs.

    If two keys of either side have the same common name, nothing is renamed: which is which would be a guess. The
    biases of convolutions, which Caffe and Keras have before BatchNorm, move into the running means.
    """
    targets = _by_common_name(wanted)
    sources = _by_common_name(state)
    if targets is None or sources is None:
        return state
    named = {targets.get(common, key): state[key] for common, key in sources.items()}
    return _fold_biases(named, targets)


def _by_common_name(keys: Iterable[str]) -> dict[str, str] | None:
    """Return the keys by common name; None if two share one."""
    found: dict[str, str] = {}
    for key in keys:
        if found.setdefault(common_name(key), key) != key:
            return None
    return found


def _fold_biases(state: StateDict, targets: dict[str, str]) -> StateDict:
    """Subtract a convolution's bias from the mean of the BatchNorm after it, where the model has no such bias.

    ``norm(Wx + b)`` with mean ``m`` is ``norm(Wx)`` with mean ``m - b``; with batch statistics ``b`` cancels.
    """
    folded = dict(state)
    for key in state:
        common = common_name(key)
        norm = re.sub(r"(^|\.)conv(\d)\.bias$", r"\1bn\2.running_mean", common)
        norm = re.sub(r"\.shortcut\.0\.bias$", ".shortcut.1.running_mean", norm)
        mean = targets.get(norm)
        if norm != common and common not in targets and mean in folded and folded[mean].shape == state[key].shape:
            folded[mean] = folded[mean] - folded.pop(key)
    return folded
