"""``ttc adapt --shards``: one stream per shard of a large set of images, on this machine or on a cluster."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from torch import nn

    from ttc.bench.ray_executor import RayExecutor
    from ttc.core import Adapter
    from ttc.deploy.batch_job import JobSettings
    from ttc.deploy.shards import ShardedJob


def run_shards(
    job: "ShardedJob", network: "nn.Module", device: str, workers: int, cluster: "RayExecutor | None"
) -> dict[str, Any]:
    """Run the shards that are missing and merge all of them; after Ctrl-C say how to resume.

    Args:
        job: The shards.
        network: The model, on the CPU.
        device: Where shards adapt it.
        workers: Shards at a time on this machine.
        cluster: A cluster to run on instead.

    Returns:
        The merged summary.

    Raises:
        typer.Exit: With code 1 if a shard failed, 130 after Ctrl-C; complete shards are saved.
    """
    from ttc.bench.executors import LocalExecutor

    missing, total = job.missing(), len(job.shards)
    if not missing:
        typer.echo(f"all shards in {job.folder} are complete; remove it to run again")
        return job.merge()
    if len(missing) < total:
        typer.echo(f"resuming after {total - len(missing):,} of {total:,} shards", err=True)
    ended, failures = total - len(missing), []
    try:
        with cluster or LocalExecutor(min(workers, max(1, len(missing))), 1) as executor:
            load: Callable[[], nn.Module] = partial(_same, network)
            if cluster is not None:
                cluster.modules = _modules(job.settings[0].model, job.settings[0].method)
                load = partial(_fetch, cluster.put(network))
            tasks = [_task(job, number, load, device) for number in missing]
            for index, result in executor.run(tasks):
                number = missing[index]
                if result.error is not None:
                    failures.append(f"shard {number + 1} of {total} failed: {result.error}")
                    continue
                job.write(number, result.value)
                ended += 1
                images = len(job.shards[number].images)
                typer.echo(
                    f"[{ended}/{total}] shard {number + 1}: {images:,} images in {result.seconds:.1f} s", err=True
                )
    except KeyboardInterrupt:
        typer.echo(f"stopped: {ended:,} of {total:,} shards are saved in {job.folder}", err=True)
        typer.echo("to resume, run the same command again", err=True)
        raise typer.Exit(130) from None
    for failure in failures:
        typer.echo(f"ttc: {failure}", err=True)
    if failures:
        typer.echo(f"ttc: {ended:,} of {total:,} shards are saved; run the same command again to retry", err=True)
        raise typer.Exit(1)
    return job.merge()


def _task(job: "ShardedJob", number: int, load: "Callable[[], nn.Module]", device: str) -> Callable[[], Any]:
    from ttc.deploy.shards import run_shard

    settings = job.settings[number]
    return partial(run_shard, partial(_build, load, settings, device), settings, job.shards[number])


def _build(load: "Callable[[], nn.Module]", settings: "JobSettings", device: str) -> "Adapter":
    import ttc

    adapter = ttc.adapt(load().to(device), settings.method, head=settings.head, small_batches=settings.small_batches)
    if settings.adaptation:
        adapter.load(Path(settings.adaptation))
    return adapter


def _same(network: "nn.Module") -> "nn.Module":
    return network


def _fetch(reference: Any) -> "nn.Module":
    from ttc.bench.ray_executor import fetch

    network: nn.Module = fetch(reference)
    return network


def _modules(*names: str) -> dict[str, str]:
    from ttc.bench.shipped_workload import module_sources

    return module_sources(names)
