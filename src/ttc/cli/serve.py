"""``ttc serve``: a model that adapts, over HTTP."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.cli.model_options import CheckpointOption, ClassesOption, HeadOption, ModelArgument, StatisticsOption

if TYPE_CHECKING:
    from ttc.serve.serve_settings import ServeSettings


def serve(
    model: ModelArgument,
    method: Annotated[str, typer.Option(help="Adaptation method; source predicts without adapting.")] = "ttc",
    checkpoint: CheckpointOption = None,
    num_classes: ClassesOption = None,
    class_names: Annotated[Path | None, typer.Option(help="A file with one class name per line.")] = None,
    statistics: StatisticsOption = None,
    head: HeadOption = None,
    size: Annotated[int | None, typer.Option(help="Side of the images, if the model does not state it.", min=1)] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    small_batches: Annotated[bool, typer.Option(help="Convert the method for batches of any size.")] = True,
    guard: Annotated[bool, typer.Option(help="Monitor each stream, roll back, fall back to the source model.")] = True,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's own need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any that is free.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token; by default the variable TTC_SERVE_TOKEN.")
    ] = None,
    state: Annotated[Path, typer.Option(help="Folder of the saved streams; the server resumes from it.")] = Path(
        "served"
    ),
    save_every: Annotated[int, typer.Option(help="Images of a stream between two saves.", min=1)] = 1000,
    max_streams: Annotated[int, typer.Option(help="Streams in memory; others are on disk.", min=1)] = 16,
    max_saved: Annotated[int, typer.Option(help="Streams on disk; a new name beyond it is rejected.", min=1)] = 10_000,
    batch_size: Annotated[int, typer.Option(help="Images per micro-batch.", min=1)] = 32,
    max_wait: Annotated[float, typer.Option(help="Seconds that an image waits for others.", min=0)] = 0.02,
    max_queued: Annotated[int, typer.Option(help="Images of a stream that may wait; then 429.", min=1)] = 256,
    max_requests: Annotated[int, typer.Option(help="Requests at once; then 429.", min=1)] = 64,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.", min=1)] = 16 << 20,
    max_images: Annotated[int, typer.Option(help="Images of a request.", min=1)] = 64,
    max_pixels: Annotated[int, typer.Option(help="Pixels of an image.", min=1)] = 40_000_000,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.", min=0)] = 30.0,
    threads: Annotated[int | None, typer.Option(help="Threads of torch.", min=1, show_default="all cores")] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run on Ray Serve.")] = False,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join, with --ray.", show_default="a new one on this machine")
    ] = None,
) -> None:
    """Serve a model that adapts: POST images to /predict or /streams/NAME/predict, one adapter per stream.

    Also /metrics, /healthz, /readyz, and a status page at /. Ctrl-C saves every stream; the same command resumes.
    """
    from ttc.errors import TTCError
    from ttc.serve.requirements import require_server_libraries
    from ttc.serve.serve_settings import LOOPBACK, TOKEN_VARIABLE, ServeSettings, read_token_digest

    require_server_libraries(ray=ray)
    if address is not None and not ray:
        raise TTCError(
            "--address is the one of a Ray cluster: give it with --ray; the server listens on --host and --port"
        )
    digest = read_token_digest(token_file, os.environ.get(TOKEN_VARIABLE))
    if not digest and host not in LOOPBACK:
        raise TTCError(
            f"a server that listens on {host} needs a token: put one into the variable {TOKEN_VARIABLE} or into a "
            "file for --token-file; python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        )
    settings = ServeSettings(
        model=model, method=method, checkpoint=str(checkpoint.resolve()) if checkpoint else "", num_classes=num_classes,
        statistics=statistics or "", head=head, size=size, device=device, small_batches=small_batches, guard=guard,
        class_names=_read_names(class_names), state=str(state.resolve()), save_every=save_every,
        max_streams=max_streams, max_saved=max_saved, batch_size=batch_size, max_wait=max_wait, max_queued=max_queued,
        max_requests=max_requests, max_body=max_body, max_images=max_images, max_pixels=max_pixels, timeout=timeout,
        token_digest=digest, hosts=() if digest else LOOPBACK,
    )  # fmt: skip
    if ray:
        from ttc.serve.ray_server import serve_on_ray

        serve_on_ray(settings, host, port, address, threads, lambda url: _announce(settings, url))
    else:
        _serve_here(settings, host, port, threads)


def _serve_here(settings: "ServeSettings", host: str, port: int, threads: int | None) -> None:
    import torch

    from ttc.methods import find_method
    from ttc.serve.local_server import bind, serve_locally

    find_method(settings.method)  # a wrong name is found before anything is opened
    if threads is not None:
        torch.set_num_threads(threads)
    with bind(host, port) as opened:
        number = opened.getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{number}"
        serve_locally(settings, opened, lambda: _announce(settings, url))
    typer.echo(f"stopped: every stream is saved in {settings.state}", err=True)


def _announce(settings: "ServeSettings", url: str) -> None:
    protected = "with a token" if settings.token_digest else "without a token, for this machine alone"
    guarded = "guarded" if settings.guard else "unguarded"
    typer.echo(f"serving {settings.model} with {settings.method}, {guarded}, on {url} ({protected})", err=True)


def _read_names(path: Path | None) -> tuple[str, ...]:
    from ttc.errors import TTCError

    if path is None:
        return ()
    try:
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise TTCError(f"cannot read the class names in {path}: {error}") from error
