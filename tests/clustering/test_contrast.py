"""The contrastive loss against its sums, written out."""

import pytest
import torch
import torch.nn.functional as F

from ttc.clustering import contrastive_loss


@pytest.mark.parametrize(("count", "number"), [(5, 3), (4, 2), (1, 3)])
def test_the_loss_by_its_sums(count: int, number: int) -> None:
    views = torch.randn(count, number, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    units = F.normalize(views, dim=2)
    terms = []
    for i in range(count):
        for v in range(number):
            others = [(j, w) for j in range(count) for w in range(number) if (j, w) != (i, v)]
            total = torch.stack([(units[i, v] @ units[other] / 0.1).exp() for other in others]).sum()
            terms += [total.log() - units[i, v] @ units[i, w] / 0.1 for w in range(number) if w != v]
    found = contrastive_loss(views, 0.1)
    torch.testing.assert_close(found, torch.stack(terms).mean())
    (gradient,) = torch.autograd.grad(found, views)
    assert gradient.isfinite().all()
