"""The commands as a user runs them, against a server on this machine."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.data.conftest import Server
from tests.data.conftest import server as server  # the fixture
from ttc.cli.app import app, main
from ttc.data.catalogue import SOURCES, DataFile, Source
from ttc.errors import TTCError

CONTENT = b"pixels" * 1000


@pytest.fixture
def small(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("small/a.bin")
        info.size = len(CONTENT)
        tar.addfile(info, io.BytesIO(CONTENT))
    server.content["small.tar"] = buffer.getvalue()
    md5 = f"md5:{hashlib.md5(buffer.getvalue()).hexdigest()}"
    part = DataFile("small/a.bin", len(CONTENT), f"md5:{hashlib.md5(CONTENT).hexdigest()}")
    source = Source("Small", "small.tar", (server.url("good", "small.tar"),), None, md5, ".", (part,), note="tiny")
    monkeypatch.setitem(SOURCES, "small", source)
    return server


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_fetch_verify_list_and_repair(small: Server, tmp_path: Path) -> None:
    root = tmp_path / "d[ata]"  # brackets are markup to the printer
    code, output = run("data", "list", "--data", root)
    assert (code, "small" in output, "present" in output) == (0, True, False)
    assert f"data directory: {root}" in output
    assert "2.1 MB" in output  # the frost textures
    code, output = run("data", "fetch", "small", "--data", root)
    assert code == 0
    assert output.splitlines()[-1] == f"small is now in {root} (verified)"
    assert (root / "small" / "a.bin").read_bytes() == CONTENT
    assert run("data", "fetch", "small", "--data", root)[1].splitlines()[-1].startswith("small is already in")
    assert run("data", "verify", "--data", root) == (0, "small: present (verified)\n")
    assert "present" in run("data", "list", "--data", root)[1]
    (root / "small" / "a.bin").write_bytes(CONTENT[::-1])
    code, output = run("data", "verify", "small", "--data", root)
    assert code == 1
    assert "small: damaged (small/a.bin does not match its checksum md5:" in output
    assert "to repair: ttc data fetch small)" in output
    run("data", "fetch", "small", "--data", root)
    assert run("data", "verify", "small", "--data", root)[0] == 0


def test_interruption_says_how_to_resume(small: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ttc.data.fetching.download", interrupted)
    code, output = run("data", "fetch", "small", "--data", tmp_path)
    assert code == 130
    assert output.splitlines()[-1] == f"interrupted; to resume: ttc data fetch small --data {tmp_path}"


def test_mistakes_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TTCError, match="there is nothing to verify in"):
        run("data", "verify", "--data", tmp_path)
    monkeypatch.setattr("sys.argv", ["ttc", "data", "fetch", "cifar-10"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("ttc: unknown dataset or checkpoint 'cifar-10' (did you mean 'cifar10'?)")
    assert error.count("\n") == 1


def test_a_data_directory_that_cannot_be_written(small: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"cannot write to .*file"):
        run("data", "fetch", "small", "--data", tmp_path / "file" / "data")
