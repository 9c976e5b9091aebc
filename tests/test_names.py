"""One name, one concept: no two modules or public classes share a name, or differ by an s, and none is torch's."""

import ast
from collections import defaultdict
from pathlib import Path

import torch.nn

SOURCE = Path(__file__).parents[1] / "src" / "ttc"
COMMANDS = "cli"  # one file per command, named like what it shows


def stems() -> dict[str, list[str]]:
    """Return the modules by name, without packages and commands."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        if path.stem != "__init__" and not (inside.parts[0] == COMMANDS and is_command(path)):
            found[path.stem].append(str(inside))
    return found


def is_command(path: Path) -> bool:
    """Tell whether a module of the command line defines the command it is named after, or a group of commands."""
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    return path.stem in names or "app" in path.read_text().split("typer.Typer")[0].rsplit("\n", 1)[-1]


def classes() -> dict[str, list[str]]:
    """Return the public classes by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return found


def shared(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: files for name, files in names.items() if len(files) > 1}


def differing_by_an_s(names: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, f"{name}s") for name in names if f"{name}s" in names]


def test_no_two_modules_share_a_name() -> None:
    assert not shared(stems())


def test_no_two_modules_differ_by_an_s() -> None:
    assert not differing_by_an_s(stems())


def test_no_two_classes_share_a_name() -> None:
    assert not shared(classes())


def test_no_two_classes_differ_by_an_s() -> None:
    assert not differing_by_an_s(classes())


def test_no_class_has_the_name_of_one_of_torch() -> None:
    assert not {name: files for name, files in classes().items() if hasattr(torch.nn, name)}


def test_a_command_is_told_from_other_modules() -> None:
    assert is_command(SOURCE / "cli" / "run.py")
    assert is_command(SOURCE / "cli" / "data.py")
    assert not is_command(SOURCE / "cli" / "progress.py")
