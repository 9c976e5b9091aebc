import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from ttc import TTCError
from ttc.serve.requirements import SERVER_LIBRARIES, require_server_libraries


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in names else find(name, package)

    monkeypatch.setattr("ttc.serve.requirements.find_spec", without)


def test_nothing_is_missing_here() -> None:
    require_server_libraries()


def test_the_sentence_says_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "uvicorn")
    with pytest.raises(TTCError, match=r"^ttc serve needs what is not installed: pip install 'uvicorn>=0.30'$"):
        require_server_libraries()


def test_ray_serve_is_only_needed_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "ray", "fastapi")
    require_server_libraries()
    with pytest.raises(TTCError, match=r"^ttc serve --ray needs .*: pip install 'ray\[serve\]>=2.40'$"):
        require_server_libraries(ray=True)


def test_the_extra_asks_for_the_same() -> None:
    from tests.test_documentation import ROOT

    (line,) = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("serve = ")]
    assert all(f'"{requirement}"' in line for requirement in SERVER_LIBRARIES.values())
