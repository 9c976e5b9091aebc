"""The optional libraries behind figures and the page, and how to install them."""

from importlib.util import find_spec

from ttc.errors import TTCError

# the extra ``report``, by module
LIBRARIES = {"altair": "altair>=6.0", "jinja2": "jinja2>=3.1", "vl_convert": "vl-convert-python>=1.8"}


def missing_libraries() -> list[str]:
    """Return the requirements of the ``report`` extra that are not installed, empty when figures can be made."""
    return [requirement for module, requirement in LIBRARIES.items() if find_spec(module) is None]


def install_hint() -> str:
    """Return the command that installs what is missing; it works for a checkout and for a wheel."""
    return f"pip install {' '.join(repr(requirement) for requirement in missing_libraries())}"


def require_libraries(what: str) -> None:
    """Check that the ``report`` extra is installed.

    Args:
        what: What needs it, as the error names it.

    Raises:
        TTCError: A library is missing; the sentence says how to install it.
    """
    if missing_libraries():
        raise TTCError(f"{what} needs libraries of the report extra that are not installed: {install_hint()}")
