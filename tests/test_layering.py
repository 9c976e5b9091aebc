"""Which package may import which: the arrows point one way, and every arrow that is allowed exists."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ttc"
LEAVES = {"errors", "files", "__version__"}  # may be imported from everywhere; import only each other
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "core": set(),
    "nn": {"core"},
    "fast": {"nn", "core"},
    "clustering": {"core", "fast"},
    "methods": {"clustering", "nn", "core", "fast"},
    "corruptions": set(),
    "data": {"corruptions"},
    "models": {"data"},
    "deploy": {"core", "clustering", "nn", "data"},
    "serve": {"core", "data", "deploy", "methods", "models"},
    "bench": {"core", "clustering", "methods", "models", "data", "corruptions"},
    "report": {"bench"},
    "studies": {"bench", "report", "core", "nn", "clustering", "data"},
    "cli": {"bench", "core", "corruptions", "data", "deploy", "methods", "models", "report", "serve", "studies"},
}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in LEAVES)


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[tuple[str, ...]]:
    """Return the parts of ``ttc`` that a file imports, as tuples of names below ``ttc``."""
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


def edges(path: Path) -> set[str]:
    """Return the packages that a file imports, other than its own."""
    return {parts[0] for parts in imported(path)} - {package_of(path)} - LEAVES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    package = package_of(path)
    assert package in ALLOWED, f"{package} is not in the plan: add it to ALLOWED or move the file"
    others = edges(path)
    assert others <= ALLOWED[package], f"{package} may not import {sorted(others - ALLOWED[package])}"


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_every_allowed_edge_exists(package: str) -> None:
    existing = {other for path in FILES if package_of(path) == package for other in edges(path)}
    assert ALLOWED[package] <= existing, f"remove from ALLOWED: {sorted(ALLOWED[package] - existing)}"


def test_the_arrows_have_no_cycle() -> None:
    left = {package: set(others) for package, others in ALLOWED.items()}
    while left:
        lowest = [package for package, others in left.items() if not others]
        assert lowest, f"these packages import each other: {sorted(left)}"
        for package in lowest:
            del left[package]
        for others in left.values():
            others.difference_update(lowest)


def test_a_method_imports_no_other_method() -> None:
    """What two methods need moves down to clustering, nn or core; wrappers and the table import what they wrap."""
    shared = {"__init__", "method", "small_batches", "flip", "window"}
    for path in (SOURCE / "methods").glob("*.py"):
        if path.stem not in shared:
            siblings = {parts[1] for parts in imported(path) if parts[0] == "methods" and len(parts) > 1}
            assert siblings <= {"method"}, f"methods/{path.name} imports {sorted(siblings - {'method'})}"


def test_no_module_is_a_catch_all() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
