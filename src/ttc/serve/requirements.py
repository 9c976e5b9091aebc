"""The optional libraries behind the server, and how to install them."""

from importlib.util import find_spec

from ttc.errors import TTCError

# the extra ``serve``, by module
SERVER_LIBRARIES = {"starlette": "starlette>=0.40", "uvicorn": "uvicorn>=0.30"}
RAY = "ray[serve]>=2.40"


def require_server_libraries(*, ray: bool = False) -> None:
    """Check that the ``serve`` extra is installed, and Ray Serve where it is asked for.

    Args:
        ray: Whether the server runs on Ray Serve.

    Raises:
        TTCError: A library is missing; the sentence says how to install it, for a checkout and for a wheel.
    """
    missing = [requirement for module, requirement in SERVER_LIBRARIES.items() if find_spec(module) is None]
    if ray and (find_spec("ray") is None or find_spec("fastapi") is None):  # ray alone does not bring Ray Serve
        missing.append(RAY)
    if missing:
        what = "ttc serve --ray" if ray else "ttc serve"
        raise TTCError(f"{what} needs what is not installed: pip install {' '.join(map(repr, missing))}")
