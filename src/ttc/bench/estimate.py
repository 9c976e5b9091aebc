"""How long a grid will take, from a trial of each method on this machine."""

import time
from collections.abc import Sequence

import torch
from torch import nn

from ttc.bench import method_specs
from ttc.bench.protocol import Protocol
from ttc.bench.runner import places_of
from ttc.bench.spec import Spec
from ttc.bench.workload import CLEAN, Workload
from ttc.data import as_tensor
from ttc.errors import TTCError

TRIAL = 32  # images of a trial batch, at most


def seconds(cells: Sequence[Protocol], workload: Workload, workers: int) -> float:
    """About how long the cells take: each method is tried once on real images, each corruption on a few."""
    if not cells:
        return 0.0
    rates: dict[tuple[str, str], float] = {}
    made: set[tuple[tuple[str, int], int]] = set()
    total = 0.0
    before = torch.get_num_threads()
    torch.set_num_threads(cells[0].threads)
    try:
        for cell in cells:
            places = places_of(cell)
            images = workload.domain(*places[0], cell.images)
            key = (cell.method, cell.options)
            if key not in rates:
                sample = as_tensor(images.pixels(range(min(TRIAL, cell.batch_size, cell.images))))
                network = workload.network(images.num_classes, cell.dtype, cell.device)
                rates[key] = _trial(cell, network, sample.to(cell.device, getattr(torch, cell.dtype)))
            passes = dict(Spec.read(cell.scenario).options).get("epochs", 1)
            assert isinstance(passes, int)
            total += rates[key] * cell.images * len(places) * passes
            for place in places:
                if place[0] != CLEAN and (place, cell.images) not in made:
                    made.add((place, cell.images))
                    total += _reading(workload, place, cell)
    finally:
        torch.set_num_threads(before)
    return total / max(1, min(workers, len(cells)))


def _trial(cell: Protocol, network: nn.Module, images: torch.Tensor) -> float:
    """Seconds an image, from the second answer to a batch; nothing for a method that cannot run at all."""
    try:
        adapter = adapters.build(network, cell.method, cell.options)
        adapter(images)
        start = time.perf_counter()
        adapter(images)
    except TTCError:
        return 0.0
    return (time.perf_counter() - start) / len(images)


def _reading(workload: Workload, place: tuple[str, int], cell: Protocol) -> float:
    """Seconds to corrupt or decode the images of a domain, from the first few; a kept domain is read from disk."""
    few = range(min(8, cell.images))
    start = time.perf_counter()
    workload.domain(*place, cell.images).pixels(few)
    return (time.perf_counter() - start) / len(few) * cell.images
