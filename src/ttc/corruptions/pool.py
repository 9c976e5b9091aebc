"""Work on all cores, a bounded amount of it at a time."""

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
ImageProgress: TypeAlias = Callable[[int, int, int], None]  # is told (images just made, found from before, all images)


def map_unordered(function: Callable[[Item, Event], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """The results of ``function`` in the order they are ready, from ``workers`` threads.

    NumPy, torch and Pillow release the interpreter while they work. Only a few items are held at a time, so memory does
    not grow with their number. When the consumer stops early or an item fails, the event is set, which a long function
    watches, what is running ends, and the rest is not begun.
    """
    rest = iter(items)
    stop = Event()
    waiting: set[Future[Result]] = set()
    with _one_thread_an_operation(), ThreadPoolExecutor(workers) as pool:
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
def _one_thread_an_operation() -> Iterator[None]:
    """Parallel over items, so that each torch operation stays on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG}


@contextmanager
def explain_disk_errors(destination: Path) -> Iterator[None]:
    """Turns a full disk or a forbidden folder into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TTCError(
                f"no space left for {destination}: free some or choose another disk, then run the same command again; "
                "finished work is kept"
            ) from error
        if error.errno in _NOT_WRITABLE:
            raise TTCError(f"{destination} cannot be written ({error.strerror}); choose another folder") from error
        raise


def available_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
