"""LAME against a transcription of its steps, one entry at a time."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc


def affinities(unit: Tensor, kind: str, k: int) -> Tensor:
    count = len(unit)
    distance = [[float((unit[i] - unit[j]).norm()) for j in range(count)] for i in range(count)]
    matrix = torch.zeros(count, count)
    bandwidth = sum(sorted(row)[min(k, count) - 1] for row in distance) / count
    for i in range(count):
        others = sorted((distance[i][j], j) for j in range(count) if j != i)
        for j in range(count):
            if kind == "rbf":
                matrix[i, j] = math.exp(-(distance[i][j] ** 2) / (2 * bandwidth**2))
            elif kind == "linear":
                matrix[i, j] = unit[i] @ unit[j]
            else:
                matrix[i, j] = float(j in [other for _, other in others[:k]])
    return matrix


def literal(model: nn.Module, x: Tensor, kind: str, k: int, symmetric: bool) -> Tensor:
    with torch.no_grad():
        features = model.get_submodule("body")(x).mean((2, 3))
        probability = model.get_submodule("fc")(features).softmax(1)
    unary = -torch.log(probability + 1e-10)
    matrix = affinities(features / features.norm(dim=1, keepdim=True), kind, k)
    if symmetric:
        matrix = (matrix + matrix.T) / 2
    labels, energies = torch.softmax(-unary, 1), [math.inf]
    for iteration in range(100):
        pairwise = matrix @ labels
        labels = torch.softmax(-unary + pairwise, 1)
        energies.append(float((unary * labels - pairwise * labels + labels * labels.clamp(min=1e-20).log()).sum()))
        if iteration > 1 and abs(energies[-1] - energies[-2]) <= 1e-8 * abs(energies[-2]):
            break
    return labels


@pytest.mark.parametrize("kind", ["rbf", "knn", "linear"])
@pytest.mark.parametrize(("k", "symmetric"), [(5, False), (2, True), (40, False)])
def test_lame_by_its_steps(kind: Any, k: int, symmetric: bool, model: nn.Module, stream: list[Tensor]) -> None:
    if kind == "knn" and k >= 24:
        k = 23  # all others
    adapter = ttc.adapt(model, "lame", affinity=kind, neighbours=k, symmetric=symmetric, accelerate=False)
    source = copy.deepcopy(model).eval()
    for batch in stream[:2]:
        expected = literal(source, batch, kind, k, symmetric)
        torch.testing.assert_close(adapter(batch).softmax(1), expected, rtol=1e-4, atol=1e-5)


def test_lame_without_affinities_is_the_source_model(model: nn.Module, stream: list[Tensor]) -> None:
    found = ttc.adapt(model, "lame", weight=0.0)(stream[0])
    torch.testing.assert_close(found.softmax(1), ttc.adapt(model, "source")(stream[0]).softmax(1))
    assert not torch.allclose(ttc.adapt(model, "lame")(stream[0]).softmax(1), found.softmax(1), atol=1e-3)


def test_a_single_image_gets_the_source_prediction(model: nn.Module, stream: list[Tensor]) -> None:
    image = stream[0][:1]
    torch.testing.assert_close(ttc.adapt(model, "lame")(image).softmax(1), ttc.adapt(model, "source")(image).softmax(1))


@pytest.mark.parametrize("kind", ["rbf", "knn", "linear"])
def test_equal_images_get_equal_finite_predictions(kind: Any, model: nn.Module, stream: list[Tensor]) -> None:
    found = ttc.adapt(model, "lame", affinity=kind)(stream[0][:1].repeat(6, 1, 1, 1))
    assert found.isfinite().all()
    torch.testing.assert_close(found, found[:1].expand(6, -1))


def test_a_window_shows_the_recent_images_to_lame(model: nn.Module, stream: list[Tensor]) -> None:
    images = torch.cat(stream)[:30]
    adapter = ttc.adapt(model, "lame", small_batches="window")
    found = torch.cat([adapter(image[None]) for image in images])[-1:]
    torch.testing.assert_close(found, ttc.adapt(model, "lame")(images)[-1:])


@pytest.mark.parametrize("option", ["neighbours", "iterations"])
def test_lame_rejects_a_count_of_zero(option: str, model: nn.Module) -> None:
    options: dict[str, Any] = {option: 0}
    with pytest.raises(ttc.TTCError, match=f"{option} is a positive number, got 0"):
        ttc.adapt(model, "lame", **options)
