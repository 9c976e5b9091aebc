"""Decision records follow one template, and the index lists all of them as they are."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
STATUS = re.compile(r"accepted|superseded by \[(\d{4})\]\((\d{4}-[a-z0-9-]+\.md)\)")


class Record(NamedTuple):
    """The head of a record and its headings."""

    number: str
    title: str
    date: str
    status: str
    headings: list[str]


def read(path: Path) -> Record:
    text = path.read_text(encoding="utf-8")
    head = re.match(r"# (\d{4}): (.+)\n\n- Date: (\d{4}-\d\d-\d\d)\n- Status: (.+)\n\n", text)
    assert head, f"{path.name} does not begin as template.md does"
    return Record(head[1], head[2], head[3], head[4], re.findall(r"^#+ (.+)$", text[head.end() :], re.MULTILINE))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_follows_the_template(path: Path) -> None:
    record = read(path)
    assert re.fullmatch(rf"{record.number}-[a-z0-9-]+\.md", path.name)
    assert record.headings == ["Context", "Decision", "Consequences"]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 120
    status = STATUS.fullmatch(record.status)
    assert status, f"{path.name}: the status is accepted or superseded, not {record.status!r}"
    if status[1]:
        assert status[2].startswith(status[1])
        assert read(FOLDER / status[2]).date >= record.date


def test_the_template_has_the_headings_it_asks_for() -> None:
    text = (FOLDER / "template.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


def test_numbers_are_unique() -> None:
    numbers = [path.name[:4] for path in RECORDS]
    assert len(numbers) == len(set(numbers))


def test_the_index_lists_every_record() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    listed = [line for line in index.splitlines() if re.match(r"\| \[\d", line)]
    records = [(path.name, read(path)) for path in RECORDS]
    assert listed == [f"| [{r.number}]({name}) | {r.title} | {r.date} | {r.status} |" for name, r in records]
