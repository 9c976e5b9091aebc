"""How long a grid will take, from finished cells of its methods or from a trial of each on this machine."""

import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import torch
from torch import nn

from ttc.bench import method_specs
from ttc.bench.grid import domains_of
from ttc.bench.precision import stored_type
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import CLEAN, Domain
from ttc.bench.spec import Spec
from ttc.bench.store import Row
from ttc.bench.workload import ResolvedWorkload
from ttc.data import as_tensor

TRIAL = 32  # images of a trial batch, at most


def estimate_seconds(
    cells: Sequence[Protocol], workload: ResolvedWorkload, workers: int, measured: Iterable[Row] = ()
) -> float:
    """Estimate how long cells take: each method is tried once on real images, each corruption on a few.

    Args:
        cells: The cells to run.
        workload: The data and the model.
        workers: The number of cells that run at a time.
        measured: Finished cells; a method that is among them, on the same model, device and batch size, is not tried.
    """
    if not cells:
        return 0.0
    before = torch.get_num_threads()
    torch.set_num_threads(cells[0].threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about batches of one: they are the run's to report
            total = _total_seconds(cells, workload, _measured_rates(measured))
    finally:
        torch.set_num_threads(before)
    return total / max(1, min(workers, len(cells)))


_Key = tuple[str | int, ...]


def _total_seconds(cells: Sequence[Protocol], workload: ResolvedWorkload, rates: dict[_Key, float]) -> float:
    counted: set[tuple[Domain, int]] = set()
    total = 0.0
    for cell in cells:
        domains = domains_of(cell)
        images = workload.domain(domains[0], cell.images)
        key = _key(cell)
        if key not in rates:
            sample = as_tensor(images.pixels(range(min(TRIAL, cell.batch_size, cell.images))))
            network = workload.network(images.num_classes, cell.dtype, cell.device)
            rates[key] = _seconds_per_image(cell, network, sample.to(cell.device, stored_type(cell.dtype)))
        total += rates[key] * _samples(cell)
        for domain in domains:
            if domain.corruption != CLEAN and (domain, cell.images) not in counted:
                counted.add((domain, cell.images))
                total += _seconds_to_load(workload, domain, cell.images)
    return total


def _measured_rates(rows: Iterable[Row]) -> dict[_Key, float]:
    """The seconds per image of finished cells, by what decides them."""
    found: dict[_Key, list[float]] = defaultdict(list)
    for row in rows:
        if row.status == "finished":
            found[_key(row.protocol)].append(row.seconds / _samples(row.protocol))
    return {key: median(rates) for key, rates in found.items()}


def _key(cell: Protocol) -> _Key:
    return cell.model_checksum, cell.method, cell.options, cell.batch_size, cell.dtype, cell.device, cell.threads


def _samples(cell: Protocol) -> int:
    """The images, with repetition, that a method sees in a cell."""
    return cell.images * len(domains_of(cell)) * _passes(cell) + _warm_up_samples(cell)


def _passes(cell: Protocol) -> int:
    options = dict(Spec.read(cell.scenario).options)
    passes = options.get("epochs", options.get("rounds", 1))
    assert isinstance(passes, int)
    return passes


def _warm_up_samples(cell: Protocol) -> int:
    """The source images, with repetition, that a method learns from before the first batch."""
    return int(json.loads(cell.options).get("warm_up_samples", 0)) if cell.source_split else 0


def _seconds_per_image(cell: Protocol, network: nn.Module, images: torch.Tensor) -> float:
    """Time the second batch; zero for a method that fails, as it will in its cells."""
    source = images[:2].repeat(8, 1, 1, 1) if cell.source_split else None  # what is timed does not depend on them
    try:
        adapter = method_specs.build_for_trial(network, cell.method, cell.options, source, dtype=cell.dtype)
        adapter(images)
        start = time.perf_counter()
        adapter(images)
    except Exception:  # a user's own builder raises what it likes
        return 0.0
    return (time.perf_counter() - start) / len(images)


def _seconds_to_load(workload: ResolvedWorkload, domain: Domain, images: int) -> float:
    """Time corrupting or decoding the first few images of a domain."""
    few = range(min(8, images))
    start = time.perf_counter()
    workload.domain(domain, images).pixels(few)
    return (time.perf_counter() - start) / len(few) * images
