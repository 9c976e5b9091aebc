"""The field's words, everywhere a user reads: the glossary of CONTRIBUTING.md has the reasons."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for pattern in (
        "src/**/*.py",
        "src/**/*.j2",
        "docs/**/*.md",
        "examples/*.py",
        "benchmarks/*.py",
        "tools/*.py",
        "*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "CONTRIBUTING.md"  # which lists the words not to use
)
PRIVATE = re.compile(
    r"""\b(
    answer(s|ed|ing)? | refus(e|es|ed|ing|al) | picture(s|d)? | graphics\ card | gather(s|ed|ing)\ (gradients|samples)
    | (one|passes|value|sample|row|feature)\ an?\ (class|batch|channel|sample|image) | go(es)?\ on\ from | surer
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_stranger_need_not_learn_a_dialect(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [f"line {number}: {line.strip()}" for number, line in enumerate(lines, 1) if PRIVATE.search(line)]
    assert not found, "\n".join(found)
