"""The policy over pairs of operations, image by image."""

import torch

from ttc.clustering import AugmentationPolicy
from ttc.clustering.adversarial_augmentation import PAIRS, random_signs
from ttc.clustering.batch_augmentation import from_pixels, to_pixels
from ttc.clustering.image_operations import OPERATIONS

IMAGES = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_each_image_goes_through_its_pair() -> None:
    policy = AugmentationPolicy(draws(1))
    pairs, signs = policy.sample(12, draws(2))
    found = policy(IMAGES, pairs, signs)
    operations = list(OPERATIONS.values())
    for i, image in enumerate(IMAGES):
        expected = image[None]
        for place, index in enumerate(PAIRS[int(pairs[i])]):
            operation = operations[index]
            magnitude = torch.sigmoid(policy.magnitudes[pairs[i], place])
            magnitude = operation.low + magnitude * (operation.high - operation.low)
            if operation.signed:
                magnitude = magnitude * signs[i, place]
            expected = operation.apply(expected, magnitude[None])
        torch.testing.assert_close(found[i], expected[0].clamp(0, 1), rtol=1e-4, atol=1e-5)


def test_there_are_ninety_one_pairs_drawn_by_their_probability() -> None:
    assert len(PAIRS) == 91
    policy = AugmentationPolicy(draws(1))
    pairs, signs = policy.sample(4000, draws(2))
    assert len(pairs.unique()) == 91
    assert set(signs.flatten().tolist()) == {-1, 1}
    with torch.no_grad():
        policy.logits[7] = 20
    assert (policy.sample(50, draws(2))[0] == 7).all()


def test_gradients_reach_the_magnitudes_that_were_used() -> None:
    policy = AugmentationPolicy(draws(1))
    pairs = torch.zeros(12).long()  # both shears
    loss = (policy(IMAGES, pairs, random_signs(12, draws(0))) - IMAGES).square().sum()
    (gradient,) = torch.autograd.grad(loss, policy.magnitudes)
    assert bool((gradient[0] != 0).all())
    assert not gradient[1:].any()


def test_standardized_images_are_augmented_in_pixels() -> None:
    normalize = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    plain, standard = AugmentationPolicy(draws(1)), AugmentationPolicy(draws(1), normalize)
    pairs, signs = plain.sample(12, draws(5))
    found = to_pixels(standard(from_pixels(IMAGES, normalize), pairs, signs), normalize)
    torch.testing.assert_close(found, plain(IMAGES, pairs, signs), rtol=0, atol=5e-3)  # a level of 256 may tip over


def test_other_precisions_keep_their_type() -> None:
    policy = AugmentationPolicy(draws(1))
    assert policy(IMAGES.bfloat16(), *policy.sample(12, draws(2))).dtype == torch.bfloat16
