import csv
import io
import json
import sys
from pathlib import Path

import pytest

from tests.bench.conftest import make_row
from ttc.bench.export import as_csv, as_json, records, write_parquet
from ttc.errors import TTCError

ROWS = [make_row(method, corruption=corruption) for method in ("norm", "ttc") for corruption in ("fog", "snow")]


def test_records_are_json_and_csv() -> None:
    found = records([make_row("ttc")], traces=True)
    loaded = json.loads(as_json(found))
    assert len(loaded) == 1
    assert (loaded[0]["method"], loaded[0]["corruption"], loaded[0]["per_class"]) == ("ttc", "fog", [None, 0.5])
    assert loaded[0]["accuracy"] + loaded[0]["error"] == pytest.approx(1)
    assert loaded[0]["trace"]["selected"] == [None]
    assert loaded[0]["options"]["bandwidth"] == 1
    (line,) = csv.DictReader(io.StringIO(as_csv(found)))
    assert (line["method"], line["seed"], json.loads(line["per_class"])) == ("ttc", "0", [None, 0.5])
    assert "trace" not in records([make_row()])[0]
    assert (as_json([]), as_csv([])) == ("[]", "")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TTCError, match=r"Parquet needs pyarrow: pip install 'pyarrow>=15'"):
        write_parquet(records([make_row()]), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_parquet_with_pyarrow(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = records(ROWS)
    write_parquet(found, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [one["accuracy"] for one in table] == [one["accuracy"] for one in found]
