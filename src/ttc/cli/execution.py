"""Where tasks run: the options ``--executor``, ``--address`` and their like, shared by several commands."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.bench.ray_executor import RayExecutor

ExecutorOption = Annotated[
    Literal["local", "ray"],
    typer.Option(help="local: processes of this machine. ray: a Ray cluster; needs the extra ray."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="With --executor ray: host:port of the cluster, or auto for the one started on this machine.",
        show_default="RAY_ADDRESS, else a Ray of this machine alone",
    ),
]
CpusOption = Annotated[
    float | None,
    typer.Option("--cpus-per-cell", help="With --executor ray: CPUs of a cell.", show_default="its threads"),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-cell",
        help="With --executor ray: GPUs of a cell, such as 0.25 for four cells on one.",
        show_default="1 with --device cuda, else 0",
    ),
]
SharedFilesOption = Annotated[
    bool,
    typer.Option(
        "--shared-files",
        help="With --executor ray: every node has the data directory at the same path, so images and model are read "
        "there, not shipped.",
    ),
]


def make_executor(
    executor: str,
    *,
    threads: int,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    workers: int | None = None,
    shared_files: bool = False,
    device: str | None = None,
) -> "RayExecutor | None":
    """Make the executor that the options describe; None for processes of this machine.

    Args:
        executor: ``local`` or ``ray``.
        threads: Torch threads per cell.
        address: The address of the cluster.
        cpus: CPUs of a cell.
        gpus: GPUs of a cell.
        workers: The most cells at a time.
        shared_files: Whether nodes read the files of the driver.
        device: The device of the cells.

    Raises:
        TTCError: If options do not fit together, or Ray is not installed.
    """
    given = {"--address": address, "--cpus-per-cell": cpus, "--gpus-per-cell": gpus, "--shared-files": shared_files}
    if executor == "local":
        for option, value in given.items():
            if value:
                raise TTCError(f"{option} is for clusters: add --executor ray")
        return None
    from ttc.bench.ray_connection import require_ray
    from ttc.bench.ray_executor import RayExecutor

    require_ray()
    on_gpu = (device or "cpu").startswith("cuda")
    if on_gpu and ":" in str(device):
        raise TTCError(f"with --executor ray, Ray chooses the GPU of a cell: use --device cuda, not {device}")
    if on_gpu and gpus == 0:
        raise TTCError("cells on --device cuda need GPUs, --gpus-per-cell is 0; give a fraction such as 0.25")
    return RayExecutor(threads, address, cpus, float(on_gpu) if gpus is None else gpus, workers, shared_files)


def count_workers(cluster: "RayExecutor | None", workers: int, *, given: bool) -> int:
    """Return how many cells run at a time: as many as the cluster has room for, unless the user gave a number."""
    if cluster is None or given:
        return workers
    with cluster as opened:
        return opened.workers
