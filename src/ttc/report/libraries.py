"""The optional libraries behind figures and the page, and how to install them."""

from importlib.util import find_spec

from ttc.errors import TTCError

LIBRARIES = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2"}  # module: distribution
INSTALL = "pip install 'test-time-clustering[report]' (from a checkout: pip install -e '.[report]')"


def missing_libraries() -> list[str]:
    """Name the distributions of the ``report`` extra that are not installed.

    Returns:
        The missing distributions, empty when figures and the page can be made.
    """
    return [name for module, name in LIBRARIES.items() if find_spec(module) is None]


def require_libraries(what: str) -> None:
    """Check that the ``report`` extra is installed.

    Args:
        what: What needs it, as the error names it.

    Raises:
        TTCError: A library is missing; the sentence says how to install it.
    """
    missing = missing_libraries()
    if missing:
        raise TTCError(f"{what} needs {' and '.join(missing)}, which this installation lacks: {INSTALL}")
