"""The parts of the cycle, with the numerical traps they must survive."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ttc
from ttc.clustering import (
    Assignment,
    BelowMeanEntropy,
    ClusteringAdapter,
    GaussianNoise,
    RandomResizedCrop,
    RandomRotation,
    RandomView,
    ReliableAndDiverse,
    SimilarityPreserving,
    Step,
    Updater,
    assign,
    horizontal_flip,
    identity,
    mean_of_views,
    selected_mean,
    similarity,
    softmax_entropy,
    vertical_flip,
)
from ttc.core import Classifier, Prediction, copy_with_trainable_norms


def assignment_of(logits: Tensor) -> Assignment:
    return Assignment(logits, softmax_entropy(logits), (Prediction(logits, logits),))


@settings(max_examples=100, deadline=None)
@given(value=st.floats(0.0, 10.0), count=st.integers(1, 300))
def test_equal_entropies_select_everyone(value: float, count: int) -> None:
    entropy = torch.full((count,), value)
    weights = BelowMeanEntropy()(Assignment(torch.zeros(count, 2), entropy, ()))
    assert weights.sum() == count  # although the rounded mean may lie below every value


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(2, 100))
def test_selection_keeps_the_low_entropies(seed: int, count: int) -> None:
    logits = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed)) * 3
    found = assignment_of(logits)
    weights = BelowMeanEntropy()(found)
    assert 1 <= weights.sum() <= count
    assert set(weights.unique().tolist()) <= {0.0, 1.0}
    if 0 < weights.sum() < count:
        assert found.entropy[weights == 1].max() <= found.entropy[weights == 0].min()


def test_of_two_samples_the_surer_is_kept() -> None:
    assert BelowMeanEntropy()(assignment_of(torch.tensor([[5.0, 0.0], [1.0, 0.0]]))).tolist() == [1.0, 0.0]


def test_an_empty_selection_takes_no_step(model: nn.Module, stream: list[Tensor]) -> None:
    steps: list[Step] = []
    adapter = ttc.adapt(model, "eta", entropy_margin=1e-9)
    assert isinstance(adapter, ClusteringAdapter)
    adapter.observer = steps.append
    answers = [adapter(stream[0]) for _ in range(3)]
    assert all(torch.equal(answers[0], answer) for answer in answers)
    assert [step.loss for step in steps] == [None] * 3
    assert adapter.updater.batches == 0


def test_an_empty_selection_after_steps_ignores_momentum(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "eta")
    assert isinstance(adapter, ClusteringAdapter)
    assert isinstance(adapter.select, ReliableAndDiverse)
    adapter(stream[0])
    adapter.select.entropy_margin = 0.0
    before = adapter(stream[1])
    assert torch.equal(before, adapter(stream[1]))


def test_eta_forgets_its_average_on_reset(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "eta")
    assert isinstance(adapter, ClusteringAdapter)
    assert isinstance(adapter.select, ReliableAndDiverse)
    adapter(stream[0])
    assert adapter.select.mean_probability is not None
    adapter.reset()
    assert adapter.select.mean_probability is None


def test_similarity_falls_with_distance() -> None:
    assert similarity(torch.ones(3, 5), torch.ones(3, 5)).tolist() == [1.0] * 3
    torch.testing.assert_close(similarity(torch.zeros(1, 4), torch.ones(1, 4), 2.0), torch.tensor([-0.5]).exp())


def test_an_attached_similarity_repels_distant_pairs() -> None:
    """Why κ is detached: beyond ‖Δg‖² = 2σ² the attached loss falls as the pair moves apart."""

    def slope(distance: float, detach: bool) -> float:
        x = torch.tensor([[distance, 0.0]], requires_grad=True)
        zero = torch.zeros(1, 2)
        found = Assignment(x, softmax_entropy(x), (Prediction(x, x), Prediction(zero, zero)))
        (gradient,) = torch.autograd.grad(SimilarityPreserving(detach_similarity=detach)(found).sum(), x)
        return float(gradient[0, 0])

    assert slope(1.0, detach=False) > 0
    assert slope(2.0, detach=False) < 0
    assert slope(2.0, detach=True) > 0


def test_the_constraint_needs_two_views(model: nn.Module, stream: list[Tensor]) -> None:
    found = assign(Classifier(model), stream[0], [identity], mean_of_views)
    with pytest.raises(ttc.TTCError, match="compares two views, the assignment has one"):
        SimilarityPreserving()(found)


def test_views_pass_one_by_one_with_their_own_statistics(model: nn.Module, stream: list[Tensor]) -> None:
    prepared = copy_with_trainable_norms(Classifier(model))
    views = [identity, lambda x: x * 0.5]
    apart = assign(prepared, stream[0], views, mean_of_views)
    together = assign(prepared, stream[0], views, mean_of_views, together=True)
    assert torch.equal(apart.views[1].logits, prepared(stream[0] * 0.5).logits)
    assert not torch.allclose(apart.logits, together.logits, atol=1e-2)
    assert together.views[1].features.shape == apart.views[1].features.shape


@pytest.mark.parametrize("view", [GaussianNoise(), RandomRotation(), RandomResizedCrop()])
def test_random_views_draw_by_seed_and_step(view: RandomView) -> None:
    x = torch.rand(5, 3, 12, 10)
    view.step = 0
    first = view(x)
    assert first.shape == x.shape
    assert torch.equal(first, view(x))
    view.step = 1
    assert not torch.equal(first, view(x))
    alone = view(x[:2])  # the first images may be drawn otherwise in a smaller batch, but the shape holds
    assert alone.shape == (2, 3, 12, 10)


def test_a_full_turn_and_a_full_crop_change_nothing() -> None:
    x = torch.rand(4, 3, 9, 12)
    torch.testing.assert_close(RandomRotation(0.0)(x), x, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(RandomResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0))(x), x, rtol=1e-4, atol=1e-5)


def test_rotation_keeps_the_shape_of_things() -> None:
    """A quarter turn of a non-square image keeps pixel distances: the centre stays, a bar turns."""
    x = torch.zeros(1, 1, 21, 31)
    x[0, 0, 10, 10:21] = 1

    turned = RandomRotation(90.0, seed=0)
    angle = (torch.rand(1, generator=turned.draws()) * 2 - 1) * 90
    out = turned(x)[0, 0]
    rows, columns = torch.nonzero(out > 0.5, as_tuple=True)
    length = ((rows.max() - rows.min()).float() ** 2 + (columns.max() - columns.min()).float() ** 2).sqrt()
    assert 8.0 <= float(length) <= 11.5, (float(angle), float(length))
    assert out[10, 15] > 0.5


def test_flips_undo_themselves() -> None:
    x = torch.rand(2, 3, 5, 7)
    for flip in (horizontal_flip, vertical_flip):
        assert torch.equal(flip(flip(x)), x)
        assert not torch.equal(flip(x), x)


def test_noise_is_in_pixels() -> None:
    x = torch.zeros(4, 3, 64, 64)
    assert GaussianNoise(std=0.1)(x).std().item() == pytest.approx(0.1, rel=0.02)
    standardized = GaussianNoise(std=0.1, normalize=((0, 0, 0), (0.5, 0.25, 0.1)))(x)
    torch.testing.assert_close(standardized.std((0, 2, 3)), torch.tensor([0.2, 0.4, 1.0]), rtol=0.05, atol=0)


def test_random_views_replay_after_reset(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc", view=GaussianNoise(std=0.3))
    first = [adapter(stream[0]) for _ in range(2)]
    assert not torch.equal(first[0], first[1])  # no step yet, but another draw
    adapter.reset()
    assert torch.equal(adapter(stream[0]), first[0])


def parameter(value: float = 0.0) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value]))


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.parametrize(
    ("options", "sizes", "values"),
    [
        ({}, [10, 10], [-1, -2]),
        ({"accumulate": 2}, [10, 10, 10, 10], [0, -2, -2, -4]),
        ({"accumulate": 2, "counter_start": 0}, [10, 10, 10], [-1, -1, -3]),
        ({"accumulate": 2, "reduction": "mean"}, [10, 10], [0, -1]),
        ({"accumulate": None}, [100, 100, 40, 40], [0, -2, -2, -4]),  # Q follows the first batch
        ({"accumulate": None, "count": "samples"}, [100, 40, 60, 200], [0, 0, -3, -4]),
        ({"reference_batch": 20}, [10, 40], [-0.5, -2.5]),
    ],
    ids=str,
)
def test_the_updater_gathers(options: dict[str, object], sizes: list[int], values: list[float]) -> None:
    weight = parameter()
    updater = Updater([weight], sgd, **options)  # type: ignore[arg-type]
    found = []
    for size in sizes:
        updater(weight.sum(), size)  # a gradient of one
        found.append(float(weight.detach()))
    assert found == values
    updater.reset()
    assert updater.accumulated == [None]


def test_flush_steps_with_what_there_is() -> None:
    weight = parameter()
    updater = Updater([weight], sgd, accumulate=3)
    updater.flush()
    assert float(weight.detach()) == 0
    updater(weight.sum(), 1)
    updater.flush()
    assert float(weight.detach()) == -1
    assert updater.accumulated_batches == 0


def test_parameters_out_of_reach_are_left_alone() -> None:
    used, unused = parameter(), parameter(3.0)
    updater = Updater([used, unused], sgd, accumulate=2)
    updater(used.sum(), 1)
    updater(used.sum(), 1)
    assert (float(used.detach()), float(unused.detach())) == (-2.0, 3.0)


def test_weights_enter_the_mean_over_selected() -> None:
    losses = torch.tensor([1.0, 2.0, 4.0])
    assert selected_mean(losses, torch.tensor([2.0, 0.0, 1.0])).item() == 3.0
