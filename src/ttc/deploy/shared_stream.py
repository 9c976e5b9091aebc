"""One stream over many processes: an adapter whose batches are computed in shards with ``torch.distributed``."""

import os
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core import Adapter, Classifier
from ttc.core.checkpoint import state_digest
from ttc.core.processes import ALONE, Processes
from ttc.core.statistics import StatisticsLayer
from ttc.deploy.process_group import GroupProcesses
from ttc.errors import TTCError

TIMEOUT = 60.0  # seconds to wait for another process


def distributed(
    adapter: Adapter,
    *,
    batches: Literal["shards", "whole"] = "shards",
    group: "dist.ProcessGroup | None" = None,
    timeout: float = TIMEOUT,
) -> Adapter:
    """Let an adapter share its stream with those of the other processes: P processes equal one with all images.

    Each process builds the same adapter and makes the same calls. The network runs on the shard of each process, with
    batch statistics over all shards; selection, losses and steps are those of the whole batch, so the adapters stay
    equal. Shards may differ in size and be empty (``torch.empty(0)``), as long as one has an image. What one process
    rejects, all of them reject.

    The process group is that of ``torchrun``, or the one that exists already: gloo on CPUs, NCCL on GPUs. If a process
    stops, the others raise :class:`ttc.core.LostProcessError`, after ``timeout`` seconds at the latest.

    Args:
        adapter: An adapter of ``norm``, ``tent``, ``eta``, ``ttc``, their variants, small-batch forms and flip
            controls, built with the same model and options in every process and on the device of this process.
        batches: What each process passes and gets back: its own images, or, as a :class:`ttc.Guard` needs, the whole
            batch, of which it computes an equal part.
        group: The process group; the default one unless given.
        timeout: Seconds to wait for another process, in a group that is created here.

    Returns:
        The adapter itself, changed in place; with one process, unchanged.

    Raises:
        TTCError: If there is no process group, the adapters differ, or the method does not support it.

    Example:
        In a script that is started with ``torchrun --nproc-per-node 2 script.py``::

            adapter = ttc.distributed(ttc.adapt(model, "ttc"))
            for images in my_shards_of_the_batches:
                logits = adapter(images)
            if torch.distributed.get_rank() == 0:
                adapter.save("adapted.safetensors")
    """
    if batches not in {"shards", "whole"}:
        raise TTCError(f"batches is 'shards' or 'whole', got {batches!r}")
    if adapter.processes.size > 1:
        raise TTCError("the adapter shares its stream already; call distributed once")
    group = group or join_processes(adapter.device, timeout)
    if dist.get_world_size(group) == 1:
        return adapter
    on_gpu = dist.get_backend(group) == "nccl"
    if on_gpu and adapter.device.type != "cuda":
        raise TTCError(f"NCCL connects GPUs and the adapter is on {adapter.device}; move it, or use a gloo group")
    device = adapter.device if on_gpu else torch.device("cpu")
    processes = GroupProcesses(group, device, timeout=timeout, whole_batches=batches == "whole")
    _require_equal(adapter, processes)
    adapter.share_stream_(processes)
    try:
        for network in adapter.networks():
            _check_network(network)
    except TTCError:
        adapter.share_stream_(ALONE)
        raise
    for network in adapter.networks():
        _share_network_(network, processes)
    return adapter


def join_processes(device: torch.device, timeout: float = TIMEOUT) -> "dist.ProcessGroup":
    """Return the default process group; without one, create that of ``torchrun``.

    Args:
        device: Where the adapter is, which decides between gloo and NCCL.
        timeout: Seconds that a process waits for another one.

    Raises:
        TTCError: If the process was not started by ``torchrun``, or the others cannot be reached.
    """
    if not dist.is_available():
        raise TTCError("this build of torch has no torch.distributed; run in one process")
    if not dist.is_initialized():
        if not launched_by_torchrun():
            raise TTCError(
                "there is no process group: start the program with torchrun --nproc-per-node P, or call "
                "torch.distributed.init_process_group first"
            )
        try:
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise TTCError(f"the other processes were not reached within {timeout:g} s: {reason}") from error
    group = dist.group.WORLD
    assert group is not None
    return group


def launched_by_torchrun() -> bool:
    """Tell whether this process is one of several that ``torchrun`` or a similar launcher started."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)


def _require_equal(adapter: Adapter, processes: Processes) -> None:
    digests = processes.exchange(state_digest(adapter))
    different = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if different:
        listed = ", ".join(map(str, different))
        raise TTCError(
            f"the adapters of processes 0 and {listed} differ: build them with the same model, weights and options"
        )


def _check_network(network: nn.Module) -> None:
    if isinstance(network, Classifier) and getattr(network.runner, "compile", False):
        raise TTCError("a compiled network cannot share a stream between processes; adapt without compile=True")
    for name, layer in network.named_modules():
        own = isinstance(layer, StatisticsLayer) and not layer.shares_stream
        if own or (isinstance(layer, _BatchNorm) and layer.running_mean is None):
            raise TTCError(
                f"the layer '{name}' ({type(layer).__name__}) cannot share a stream between processes: run in one, or "
                "choose norm, tent, eta or ttc"
            )


def _share_network_(network: nn.Module, processes: Processes) -> None:
    if isinstance(network, Classifier):
        network.processes = processes
    for layer in network.modules():
        if isinstance(layer, StatisticsLayer):
            layer.processes = processes
