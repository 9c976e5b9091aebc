"""Who may import whom: the arrows of the house point one way."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ttc"
LEAVES = {"errors", "files", "__version__"}  # may be imported from everywhere, import nothing of ours
ALLOWED = {
    "errors": set[str](),
    "files": set[str](),
    "core": set[str](),
    "clustering": {"core"},
    "methods": {"clustering", "core"},
    "deploy": {"core"},
    "corruptions": set[str](),
    "data": {"corruptions"},
    "models": {"core"},
    "bench": {"core", "clustering", "methods", "models", "data", "corruptions", "deploy"},
    "report": {"bench", "core", "methods", "models", "data"},
    "studies": {"bench", "report", "core", "clustering", "methods", "models", "data", "corruptions"},
    "cli": {"core", "methods", "deploy", "corruptions", "data", "models", "bench", "report", "studies"},
}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in LEAVES)


def imported(path: Path) -> set[tuple[str, ...]]:
    """The parts of ``ttc`` that a file imports, as tuples of names below ``ttc``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names = [node.module or ""]
            if node.module == "ttc":
                names = [f"ttc.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {tuple(name.split(".")[1:]) for name in names if name.startswith("ttc.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert room in ALLOWED, f"{room} is not a room of the plan: add it to ALLOWED or move the file"
    others = {parts[0] for parts in imported(path)} - {room} - LEAVES
    assert others <= ALLOWED[room], f"{room} may not import {sorted(others - ALLOWED[room])}"


def test_methods_do_not_import_each_other() -> None:
    for path in (SOURCE / "methods").glob("*.py"):
        if path.stem not in {"__init__", "registry"}:
            siblings = {parts for parts in imported(path) if parts[0] == "methods"}
            assert not siblings, f"{path.name}: what two methods share moves down to clustering or core"


def test_no_module_is_a_drawer() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
