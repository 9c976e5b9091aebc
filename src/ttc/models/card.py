"""Model cards: how a model was trained and how accurate it is, as JSON and as Markdown."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.files import atomic, checksum


@dataclass(frozen=True)
class ModelCard:
    """The content of a model card; accuracies are fractions in [0, 1]."""

    model: str
    dataset: str
    num_classes: int
    statistics: str
    parameters: int
    recipe: dict[str, Any]
    clean_accuracy: float
    clean_images: int
    corruptions: dict[str, dict[str, float]]  # name -> accuracy {"source": without, "norm": with batch statistics}
    severity: int
    corrupted_images: int
    batch_size: int
    weights: str
    sha256: str
    data_checksum: str
    versions: dict[str, str]


def accuracy(predict: Callable[[Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Compute the fraction of images whose largest logit is that of the label.

    >>> accuracy(lambda x: x, [(torch.eye(3), torch.tensor([0, 1, 0]))])
    0.6666666666666666
    """
    correct = total = 0
    for x, labels in batches:
        with torch.no_grad():
            correct += int((predict(x).argmax(1).cpu() == labels.cpu()).sum())
        total += len(labels)
    return correct / total


def save_weights(model: nn.Module, path: Path, metadata: Mapping[str, str]) -> str:
    """Save the state dict as safetensors with ``metadata`` in its header; return the SHA-256 of the file."""
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    try:
        with atomic(path) as part:
            save_file(state, part, dict(metadata))
    except SafetensorError as error:  # on a full disk
        raise TTCError(f"cannot write {path}: {error}; free some space, then run the same command again") from error
    return checksum(path)


def write_card(card: ModelCard, folder: Path) -> list[Path]:
    """Write ``card.json`` and ``card.md`` into ``folder``."""
    texts = {"card.json": json.dumps(asdict(card), indent=2) + "\n", "card.md": card_markdown(card)}
    for name, text in texts.items():
        with atomic(folder / name) as part:
            part.write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def card_markdown(card: ModelCard) -> str:
    """Format the card as Markdown."""
    recipe = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in card.recipe.items())
    lines = [
        f"# {card.model} on {card.dataset}",
        "",
        f"- {card.num_classes} classes, {card.parameters:,} parameters",
        f"- takes images in [0, 1]; its first layer standardizes them with the statistics `{card.statistics}`",
        "- Nesterov SGD with a one-cycle schedule; random crops and flips, no augmentation that resembles a corruption",
        f"- recipe: {recipe}",
        f"- clean accuracy: **{card.clean_accuracy:.2%}** of {card.clean_images:,} test images",
        f"- weights: `{card.weights}`, SHA-256 `{card.sha256}`",
        f"- test data SHA-256 `{card.data_checksum}`",
        f"- made with {', '.join(f'{name} {version}' for name, version in card.versions.items())}",
        "",
    ]
    if card.corruptions:
        lines += [
            f"Accuracy in percent on {card.corrupted_images:,} test images at severity {card.severity}, corrupted by "
            "`ttc.corruptions`. SOURCE is the unadapted model; NORM uses the BatchNorm statistics of each batch of "
            f"{card.batch_size}.",
            "",
            "| corruption | SOURCE | NORM |",
            "|---|---:|---:|",
            *(f"| {name} | {100 * a['source']:.1f} | {100 * a['norm']:.1f} |" for name, a in card.corruptions.items()),
            f"| **mean** | {100 * _mean(card, 'source'):.1f} | {100 * _mean(card, 'norm'):.1f} |",
            "",
        ]
    return "\n".join(lines)


def _mean(card: ModelCard, method: str) -> float:
    return sum(row[method] for row in card.corruptions.values()) / len(card.corruptions)
