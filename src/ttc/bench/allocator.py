"""The memory allocator of a process that adapts batch after batch."""

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # the parameters of mallopt, from malloc.h
MORE = 1 << 26  # bytes requested from the system at once


def reuse_memory() -> bool:
    """Let this process keep the memory of one batch for the next.

    The C library returns large tensors to the system as soon as they are freed, and the system clears the memory of the
    next ones page by page: with images of ImageNet's size that is up to half of the time. Kept memory is given back
    when the process ends, so this is for processes that do nothing else.

    Returns:
        Whether the allocator took the settings; other systems than Linux with glibc keep their own.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        mallopt(parameter, value) for parameter, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, MORE))
    )
