import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import Server
from ttc.data.download import download
from ttc.errors import TTCError

BODY = np.random.default_rng(0).bytes(900_001)
MD5 = f"md5:{hashlib.md5(BODY).hexdigest()}"


@pytest.fixture
def file(server: Server, tmp_path: Path) -> Path:
    server.content["f"] = BODY
    return tmp_path / "deep" / "f"


def left(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir())


def test_a_complete_download_reports_progress(server: Server, file: Path) -> None:
    reported: list[tuple[int, int | None]] = []
    download([server.url("good", "f")], file, MD5, len(BODY), lambda done, total: reported.append((done, total)))
    assert file.read_bytes() == BODY
    assert left(file) == ["f"]
    assert reported[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


def test_a_cut_connection_is_continued_not_repeated(server: Server, file: Path) -> None:
    download([server.url("cut", "f")], file, MD5, pause=0)
    assert file.read_bytes() == BODY
    ranges = [wanted for _, wanted in server.requests]
    assert ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_later_call_resumes_where_the_earlier_one_stopped(server: Server, file: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done > 300_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download([server.url("good", "f")], file, None, progress=interrupt)
    assert not file.exists()
    size = file.with_name("f.part").stat().st_size
    assert 0 < size < len(BODY)
    download([server.url("good", "f")], file)
    assert file.read_bytes() == BODY
    assert server.requests[-1][1] == f"bytes={size}-"
    assert left(file) == ["f"]


def test_a_changed_file_is_not_appended_to_the_old_part(server: Server, file: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        download([server.url("good", "f")], file, None, progress=lambda done, total: print(1 / 0))
    server.etag, server.content["f"] = '"two"', BODY[::-1]
    download([server.url("good", "f")], file)
    assert file.read_bytes() == BODY[::-1]


def test_an_unknown_beginning_without_a_checksum_is_thrown_away(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name("f.part").write_bytes(b"something else")
    download([server.url("good", "f")], file)
    assert file.read_bytes() == BODY
    assert server.requests[0][1] is None


def test_a_wrong_beginning_is_found_by_the_checksum(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name("f.part").write_bytes(b"something else")
    download([server.url("good", "f")], file, MD5, pause=0)
    assert file.read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == ["bytes=14-", None]


def test_a_finished_part_is_recognised(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name("f.part").write_bytes(BODY)
    download([server.url("good", "f")], file, MD5, len(BODY), pause=0)
    assert file.read_bytes() == BODY
    assert len(server.requests) == 1


def test_a_part_that_is_too_long_starts_over(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name("f.part").write_bytes(BODY + b"more")
    download([server.url("good", "f")], file, MD5, len(BODY), pause=0)
    assert file.read_bytes() == BODY


def test_servers_without_ranges_start_over(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name("f.part").write_bytes(BODY[:1000])
    download([server.url("norange", "f")], file, MD5, pause=0)
    assert file.read_bytes() == BODY


@pytest.mark.parametrize("how", ["html", "disguised", "404", "other", "busy"])
def test_the_next_mirror_is_asked(server: Server, file: Path, how: str) -> None:
    download([server.url(how, "f"), server.url("good", "f")], file, MD5, pause=0)
    assert file.read_bytes() == BODY


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("html", "returned a web page instead of the file"),
        ("disguised", "returned a web page instead of the file"),
        ("404", "HTTP 404 Not Found"),
        ("other", "its checksum is not md5:"),
    ],
)
def test_failure_names_reason_and_way_out(server: Server, file: Path, how: str, reason: str) -> None:
    with pytest.raises(
        TTCError, match=rf"could not download f \(127.0.0.1:\d+: .*{reason}.*in a browser .* save it as"
    ):
        download([server.url(how, "f")], file, MD5, pause=0)
    assert len(server.requests) == 1
    assert left(file) == []


def test_a_continuation_at_the_wrong_place_is_rejected(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name("f.part").write_bytes(BODY[:1000])
    with pytest.raises(TTCError, match="resumed at another offset than requested"):
        download([server.url("wrongplace", "f")], file, MD5, pause=0)


def test_wrong_length(server: Server, file: Path) -> None:
    with pytest.raises(TTCError, match="the file has 900001 bytes instead of 5"):
        download([server.url("good", "f")], file, MD5, 5, pause=0)


def test_a_closed_port_is_given_up(file: Path, server: Server) -> None:
    with pytest.raises(TTCError, match=r"could not download f \(127.0.0.1:1: .*run the command again"):
        download(["http://127.0.0.1:1/f"], file, pause=0)


def test_an_unknown_host_is_not_asked_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(TTCError, match=r"nowhere.invalid: the host cannot be found"):
        download(["http://nowhere.invalid/f"], file, pause=1000)


def test_no_place_to_write(server: Server, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file, not a directory")
    with pytest.raises(TTCError, match=r"cannot write to .*blocked .*--data or TTC_DATA"):
        download([server.url("good", "f")], tmp_path / "blocked" / "f")


@pytest.mark.parametrize("how", ["endless", "longer"])
def test_a_server_that_sends_too_much_is_cut_off_at_the_expected_size(server: Server, file: Path, how: str) -> None:
    with pytest.raises(TTCError, match=f"more than the {len(BODY)} bytes expected"):
        download([server.url(how, "f")], file, MD5, len(BODY), pause=0)
    assert left(file) == []
    with pytest.raises(TTCError, match="more than the 1000000 bytes expected"):
        download([server.url("endless", "f")], file, None, pause=0, limit=1_000_000)
    assert left(file) == []
    assert server.sent < 50 * len(BODY)  # what the connection buffers, not gigabytes


def test_a_file_beyond_the_limit_is_not_begun(server: Server, file: Path) -> None:
    with pytest.raises(TTCError, match="at most 1000 were expected"):
        download([server.url("good", "f")], file, limit=1000, pause=0)


def test_an_invalid_length_and_a_redirect_to_ftp_are_one_sentence(server: Server, file: Path) -> None:
    with pytest.raises(TTCError, match="invalid Content-Length, 'abc'"):
        download([server.url("badlength", "f")], file, MD5, len(BODY), pause=0)
    with pytest.raises(TTCError, match="redirects to ftp, expected http or https"):
        download([server.url("ftp", "f")], file, MD5, len(BODY), pause=0)
