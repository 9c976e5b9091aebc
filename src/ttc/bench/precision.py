"""The floating-point type of a cell: what it stores and what it computes in."""

import torch

DTYPES = ("float32", "float64", "bfloat16")


def stored_type(dtype: str) -> torch.dtype:
    """Return the type of parameters and images; steps of learning are too small for bfloat16.

    >>> stored_type("float64"), stored_type("bfloat16")
    (torch.float64, torch.float32)

    Args:
        dtype: One of ``DTYPES``.
    """
    return torch.float64 if dtype == "float64" else torch.float32


def uses_autocast(dtype: str) -> bool:
    """Tell whether convolutions and products of matrices are computed in bfloat16.

    Args:
        dtype: One of ``DTYPES``.
    """
    return dtype == "bfloat16"
