"""The code in README and documentation runs as printed, and every link resolves.

A page is run from top to bottom in an empty directory: Python blocks in one namespace, commands in between. A Python
block with a title is a file of that name. A text block titled "prints" is the output of the block above it, of its last
command if there are several, compared without digits, since machines round differently. What belongs into a checkout
is tried in a copy of it.
"""

import importlib
import io
import os
import pydoc
import re
import shlex
import shutil
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
    "ttc serve": "runs until it is stopped; tests/serve runs it",
    "curl": "needs a server; tests/serve sends the same",
    "ttc train": "trains for hours",
    "ttc data fetch": "downloads",
    "ttc reproduce components": "takes minutes",
    "ttc reproduce regret": "takes minutes",
    "ttc reproduce cifar10c": "takes minutes, or needs downloads",
    "ttc reproduce all": "takes an hour",
    "ttc reproduce cifar100c": "needs data that is not in the repository",
    "ttc reproduce imagenetc": "needs data that is not in the repository",
    "ttc reproduce cifar100c,components,batch-size,severity": "needs data that is not in the repository",
    "python tools/upper_bound.py": "needs data that is not in the repository",
    "ttc methods --markdown > docs/methods.md": "is compared with the page by tests/cli/test_methods.py",
    "torchrun": "starts processes, as tests/deploy/test_shared_stream.py and tests/cli/test_adapt.py do",
    "mv margin.py": "is run by test_a_method_is_added_word_for_word",
    "python -m pytest tests/methods/test_contract.py": "is run by test_a_method_is_added_word_for_word",
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


def in_checkout(block: Block) -> bool:
    """Whether a block is a file of a checkout, or a change to one."""
    return block.title.startswith(("src/", "tests/"))


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
    _make_readers_files(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    try:
        for block in blocks(page):
            if in_checkout(block):
                continue
            if block.language == "python":
                printed = _run_python(block, names)
            elif block.language == "sh":
                for command in commands(block):
                    printed = _run_command(command, tmp_path)
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


def test_a_method_is_added_word_for_word(tmp_path: Path) -> None:
    """Follow docs/add-a-method.md in a copy of the checkout, up to the contract suite of the new method."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ran = []
    for block in blocks(ROOT / "docs" / "add-a-method.md"):
        if block.language == "python" and block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "diff":
            _apply(block, tmp_path)
        for command in commands(block) if block.language == "sh" else []:
            if command.startswith("mv "):
                subprocess.run(shlex.split(command), cwd=tmp_path, check=True)
            elif command.startswith("python -m pytest "):
                ran.append(_run_in_checkout(command, tmp_path))
    assert len(ran) == 1
    assert re.search(r"^[2-9]\d passed", ran[0], re.MULTILINE), ran[0]


def _apply(block: Block, checkout: Path) -> None:
    """Change a file as a diff without line numbers says."""
    lines = block.text.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
    path = checkout / block.title
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"docs/add-a-method.md: {block.title} no longer has\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def _run_in_checkout(command: str, checkout: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, *shlex.split(command)[1:]]
    shown = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


def _make_readers_files(folder: Path) -> None:
    """Create the images that commands name."""
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


def _run_command(command: str, folder: Path) -> str:
    """Run a command of ours in this process, a script of the page in its folder, others in the checkout."""
    words = shlex.split(command, comments=True)
    if words[0] == "ttc":
        _parse(words[1 : words.index(">") if ">" in words else None])
    if begins(command) is not None:
        return ""
    if words[0] == "ttc":
        from ttc.cli.app import app

        with redirect_stdout(io.StringIO()) as printed:
            assert app(words[1:], standalone_mode=False) in {None, 0}
        return printed.getvalue()
    assert words[0] == "python", f"say in NOT_RUN why '{command}' is not run"
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    place = folder if (folder / words[1]).is_file() else ROOT
    shown = subprocess.run(
        [sys.executable, *words[1:]], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


def _parse(words: list[str]) -> None:
    """Parse the words as the command line does, down to the options of the subcommand, without running anything."""
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
def test_an_invalid_command_would_be_noticed(command: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        _parse(command.split())


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "0", text).strip()


def test_every_exception_is_on_a_page() -> None:
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
def test_links_resolve(page: Path) -> None:
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
            assert pydoc.locate(name) is not None, f"{page.name}: {name}"


def test_the_navigation_names_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}
    assert sorted(listed) == sorted(
        page for page in pages if not re.match(r"decisions/(\d|template)|results/\w+/", page)
    )


def test_the_extra_for_the_site_is_pinned() -> None:
    extra = re.search(r"^docs = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert extra
    wanted = set(re.findall(r'"([\w-]+)', extra[1]))
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {"mkdocs-material", "mkdocstrings"} <= wanted <= pinned


def test_changelog_and_citation_name_the_version() -> None:
    from ttc import __version__

    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    sections = re.findall(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert __version__ == next(section for section in sections if section != "Unreleased")


def test_the_workflow_covers_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    oldest = re.search(r'^requires-python = ">=(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    versions = re.search(r"python: \[(.+)\]", workflow)
    assert oldest
    assert versions
    assert re.findall(r"[\d.]+", versions[1])[0] == oldest[1]
    assert "run: .ci/run" in workflow
