import errno
import os
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from tests.bench.conftest import CountedImages, domain, protocol
from ttc.bench import evaluate
from ttc.bench.evaluation import LIVE
from ttc.bench.source_cache import source_logits
from ttc.errors import TTCError


def test_source_predictions_are_computed_once(model: nn.Module, tmp_path: Path) -> None:
    first = evaluate(protocol("source", batch_size=4), [domain()], model, tmp_path)
    (cached,) = tmp_path.iterdir()
    data = CountedImages(domain())
    second = evaluate(protocol("source", batch_size=4), [data], model, tmp_path)
    assert data.read == 1 + LIVE * 4  # for the shape, and the batches that are timed
    assert (first.accuracy, first.nll) == (second.accuracy, second.nll)
    other = evaluate(protocol("source", batch_size=7, seed=4, scenario="mixed"), [domain()], model, tmp_path)
    np.testing.assert_array_equal(other.predictions, first.predictions)
    assert other.nll == pytest.approx(first.nll)
    assert list(tmp_path.iterdir()) == [cached]
    evaluate(protocol("source", model_checksum="other"), [domain()], model, tmp_path)
    evaluate(protocol("source"), [domain(50)], model, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    without = evaluate(protocol("source", batch_size=4), [domain()], model)
    assert (without.accuracy, without.nll, without.ece) == (first.accuracy, first.nll, first.ece)


def test_cached_predictions_of_another_model_are_noticed(model: nn.Module, tmp_path: Path) -> None:
    evaluate(protocol("source"), [domain()], model, tmp_path)
    (cached,) = tmp_path.iterdir()
    np.save(cached, np.load(cached) + 1)
    with pytest.raises(TTCError, match="are not this model's; delete that directory"):
        evaluate(protocol("source"), [domain()], model, tmp_path)


def test_a_cache_that_cannot_be_written_is_explained(model: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"cannot write to .*file"):
        evaluate(protocol("source"), [domain()], model, tmp_path / "file" / "cache")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TTCError, match="No space left on device"):
        source_logits(protocol(), domain(), model, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
