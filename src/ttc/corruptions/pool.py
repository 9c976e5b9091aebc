"""A thread pool with bounded memory, and explanations of disk errors."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TypeAlias, TypeVar

import torch

from ttc.errors import TTCError

Item = TypeVar("Item")
Result = TypeVar("Result")
ImageProgress: TypeAlias = Callable[[int, int, int], None]  # (images just written, images found from before, total)


def map_unordered(function: Callable[[Item, Event], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Apply ``function`` to ``items`` in ``workers`` threads and yield the results as they complete.

    NumPy, torch and Pillow release the interpreter lock while they work. Only a few items are in flight at a time, so
    memory does not grow with their number. If the consumer stops early or an item fails, pending items are cancelled
    and the event is set, which a long-running function should check.
    """
    rest = iter(items)
    stop = Event()
    waiting: set[Future[Result]] = set()
    with _single_threaded_torch(), ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                waiting |= {pool.submit(function, item, stop) for item in islice(rest, 2 * workers - len(waiting))}
                if not waiting:
                    return
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _single_threaded_torch() -> Iterator[None]:
    """Run each torch operation on one core, as items already run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG}


@contextmanager
def explain_disk_errors(destination: Path) -> Iterator[None]:
    """Turn a full disk or an unwritable folder into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TTCError(
                f"no space left for {destination}: free some space, then run the same command again to resume"
            ) from error
        if error.errno in _NOT_WRITABLE:
            raise TTCError(f"cannot write to {destination} ({error.strerror}); choose another folder") from error
        raise


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
