"""What README and documentation show runs as it stands there, and every link leads somewhere.

A page is run from top to bottom in an empty directory: Python blocks in one namespace, commands in between. A Python
block with a title is also written to the file of that name. A text block titled "prints" holds what the block above it
prints, digits aside, since machines round differently.
"""

import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = {  # commands that are only parsed, by how they begin
    "ttc demo": "takes minutes",
    "ttc run": "takes minutes",
    "ttc results": "needs the results of a run",
    "ttc report": "needs the results of a study",
    "ttc train": "trains for hours",
    "ttc data fetch": "downloads",
    "ttc reproduce components": "takes minutes",
    "ttc reproduce cifar10c": "takes minutes, or needs downloads",
    "ttc reproduce all": "takes an hour",
    "ttc methods --markdown > docs/methods.md": "is compared with the page by tests/cli/test_methods.py",
    "pip install": "changes the environment",
    "make": "runs the tests that run this one",
}
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r"--8<--\n(examples/\w+\.py)\n--8<--\n")


class Block(NamedTuple):
    """A fenced block of a page: its language, its title, its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = []
    for language, rest, text in FENCE.findall(page.read_text(encoding="utf-8")):
        title = re.fullmatch(r'(?: title="([^"]+)")?', rest)
        assert title, f"{page.name}: {rest!r} after ```{language}"
        found.append(Block(language, title[1] or "", text))
    return found


def commands(block: Block) -> list[str]:
    return [line.partition("  #")[0].strip() for line in block.text.splitlines() if line.strip()]


def begins(command: str) -> str | None:
    """The entry of NOT_RUN for a command, if any."""
    return next((start for start in NOT_RUN if f"{command} ".startswith(f"{start} ")), None)


WITH_CODE = [page for page in PAGES if blocks(page)]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TTC_DATA", str(tmp_path / "data"))
    modules, methods = set(sys.modules), importlib.import_module("ttc.methods").METHODS
    known = dict(methods)
    _what_a_reader_has(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    try:
        for block in blocks(page):
            if block.language == "python":
                printed = _run_python(block, names)
            elif block.language == "sh":
                for command in commands(block):
                    _run_command(command, tmp_path)
            else:
                assert block.language == "text", f"{page.name}: a block is python, sh or text, not {block.language!r}"
                if block.title == "prints":
                    assert _without_digits(printed) == _without_digits(block.text)
    finally:
        for name in set(sys.modules) - modules:
            if (tmp_path / f"{name}.py").exists():
                del sys.modules[name]
        methods.clear()
        methods.update(known)


def _what_a_reader_has(folder: Path) -> None:
    """The pictures that commands name."""
    grey = Image.new("RGB", (64, 48), (90, 120, 150))
    (folder / "path" / "to" / "images" / "class").mkdir(parents=True)
    grey.save(folder / "path" / "to" / "images" / "class" / "one.png")
    grey.save(folder / "photo.jpg")


def _run_python(block: Block, names: dict[str, Any]) -> str:
    included = INCLUDED.fullmatch(block.text)
    if included:  # an example, which tests/test_examples.py runs
        assert (ROOT / included[1]).is_file()
        return ""
    if block.title:
        Path(block.title).write_text(block.text, encoding="utf-8")
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(block.text, block.title or "<page>", "exec", dont_inherit=True), names)
    return printed.getvalue()


def _run_command(command: str, folder: Path) -> None:
    """Run a command of ours in this process; the others in the checkout, with the page's files at hand."""
    words = shlex.split(command, comments=True)
    if words[0] == "ttc":
        _parsed(words[1 : words.index(">") if ">" in words else None])
    if begins(command) is not None:
        return
    if words[0] == "ttc":
        from ttc.cli.app import app

        with redirect_stdout(io.StringIO()):
            assert app(words[1:], standalone_mode=False) in {None, 0}
    else:
        assert words[0] == "python", f"say in NOT_RUN why '{command}' is not run"
        path = os.pathsep.join([str(folder), str(ROOT / "src")])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        shown = subprocess.run(
            [sys.executable, *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert shown.returncode == 0, shown.stdout + shown.stderr


def _parsed(words: list[str]) -> None:
    """Let the command line read the words, down to the options of the subcommand, without running anything."""
    from typer.main import get_command

    from ttc.cli.app import app

    command: Any = get_command(app)
    context: Any = None
    while True:
        context = command.make_context(command.name or "ttc", list(words), parent=context)
        rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
        if not hasattr(command, "resolve_command") or not rest:
            return
        _, command, words = command.resolve_command(context, rest)


@pytest.mark.parametrize("command", ["run --imgs 3", "data fetch --nope", "nonsense", "reproduce", "data nonsense"])
def test_a_wrong_command_would_be_noticed(command: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        _parsed(command.split())


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "0", text).strip()


def test_what_is_not_run_is_shown_somewhere() -> None:
    shown = {begins(command) for page in PAGES for block in blocks(page) if block.language == "sh"
             for command in commands(block)}  # fmt: skip
    assert set(NOT_RUN) <= shown


def test_the_targets_that_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for block in blocks(page):
            for command in commands(block) if block.language == "sh" else []:
                if command.startswith("make "):
                    assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE), command


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        if (ROOT / "docs") in page.parents:
            assert (ROOT / "docs") in found.parents, f"{page.name} links to {target}, which the site does not have"
        if anchor:
            assert anchor in _anchors(found), f"{page.name} links to {target}"


def test_names_in_the_api_pages_exist() -> None:
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE) + re.findall(r"\]\[(ttc[\w.]*)\]", text):
            module, _, attribute = name.rpartition(".")
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(module), attribute), f"{page.name}: {name}"


def test_the_navigation_names_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}
    assert sorted(listed) == sorted(page for page in pages if not re.match(r"decisions/\d|results/\w+/", page))
    assert all(re.match(r"\d{4}-[a-z0-9-]+\.md$", page.name) for page in (ROOT / "docs" / "decisions").glob("0*"))


def test_the_extra_for_the_site_is_pinned() -> None:
    extra = re.search(r"^docs = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert extra
    wanted = set(re.findall(r'"([\w-]+)', extra[1]))
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {"mkdocs-material", "mkdocstrings"} <= wanted <= pinned
