"""One file over HTTP: resumed where it stopped, checked, and only then given its name."""

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import ttc
from ttc.data.location import unwritable
from ttc.errors import TTCError
from ttc.files import checksum as file_checksum

ByteProgress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known
PIECE = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
GIVE_UP = 5  # attempts in a row that bring nothing new


class _UnusableError(Exception):
    """This address will not give the file, however often it is asked."""


def download(
    urls: Sequence[str],
    target: Path,
    checksum: str | None = None,
    size: int | None = None,
    progress: ByteProgress | None = None,
    pause: float = 1.0,
) -> None:
    """Fetch ``target`` from the first of ``urls`` that gives it whole; an earlier partial download is continued.

    ``checksum`` is ``"md5:…"`` or ``"sha256:…"``. What has come so far stays in ``target.part`` for the next call.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target.parent, error) from error
    problems = []
    for url in urls:
        problem = _from_one(url, part, checksum, size, progress, pause)
        if problem is None:
            part.replace(target)
            _validator(part).unlink(missing_ok=True)
            return
        problems.append(f"{urlsplit(url).netloc}: {problem}")
    if _size(part) == 0:
        part.unlink(missing_ok=True)
        _validator(part).unlink(missing_ok=True)
    raise TTCError(
        f"could not download {target.name} ({'; '.join(problems)}); run the command again to go on where it stopped, "
        f"or download it in a browser from {urls[0]} and save it as {target}"
    )


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has the ``"algorithm:hex"`` checksum."""
    algorithm, _, digest = checksum.partition(":")
    return file_checksum(path, algorithm) == digest


def _from_one(
    url: str, part: Path, checksum: str | None, size: int | None, progress: ByteProgress | None, pause: float
) -> str | None:
    """Bring ``part`` to its full length from one address; None when it is whole, else the reason why not."""
    best, idle, reason = _size(part), 0, ""
    while idle < GIVE_UP:
        if idle:
            time.sleep(pause * 2 ** (idle - 1))
        try:
            resumed = _transfer(url, part, checksum is not None, size, progress)
        except _UnusableError as error:
            return str(error)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            idle = idle + 1 if _size(part) <= best else 0
            best = max(best, _size(part))
            continue
        if checksum is None or matches(part, checksum):
            return None
        part.unlink()
        best = 0
        if not resumed:
            return f"the file has another checksum than {checksum}"
        idle += 1  # the beginning was of another file: once more from the start
        reason = f"the file has another checksum than {checksum}"
    return reason


def _transfer(url: str, part: Path, trusted: bool, size: int | None, progress: ByteProgress | None) -> bool:
    """Append what is missing to ``part``; true where an earlier beginning was kept. A checksum lets us trust that."""
    offset = _size(part)
    known = _validator(part).read_text().splitlines() if _validator(part).exists() else []
    same = known[:1] == [url] and len(known) == 2
    headers = {"User-Agent": f"ttc/{ttc.__version__}"}
    if offset and (trusted or same):
        headers["Range"] = f"bytes={offset}-"
        if same:
            headers["If-Range"] = known[1]
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # nothing lies beyond what we have: whole already, or the wrong file
                if size is not None and offset == size:
                    return True
                part.unlink(missing_ok=True)
                raise OSError("the server refused to continue, starting over") from error
            if error.code < 500 and error.code not in (408, 429):
                raise _UnusableError(f"HTTP {error.code} {error.reason}") from error
            raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, socket.gaierror):  # waiting does not help: no network, or no such host
            raise _UnusableError(f"the host cannot be found ({error.reason.strerror})") from error
        raise
    with response:
        start = offset if response.status == 206 else 0
        if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise _UnusableError("it continued at another place than asked for")
        if response.headers.get_content_type() == "text/html":
            raise _UnusableError("it answered with a web page instead of the file (a quota, a login or a consent page)")
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else size
        if size is not None and total is not None and total != size:
            raise _UnusableError(f"the file has {total} bytes instead of {size}")
        _remember(part, url, response.headers)
        try:
            file = part.open("ab" if start else "wb")
        except OSError as error:
            raise unwritable(part.parent, error) from error
        with file:
            done = _copy(response, file, start, total, progress)
    if total is not None and done < total:
        raise OSError(f"the connection ended after {done} of {total} bytes")
    return start > 0


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, start: int, total: int | None, progress: ByteProgress | None
) -> int:
    done = start
    while piece := response.read(PIECE):
        if done == 0 and piece.lstrip()[:16].lower().startswith((b"<!doctype html", b"<html")):
            raise _UnusableError("it answered with a web page instead of the file (a quota, a login or a consent page)")
        try:
            file.write(piece)
        except OSError as error:
            raise unwritable(Path(file.name).parent, error) from error
        done += len(piece)
        if progress:
            progress(done, total)
    return done


def _validator(part: Path) -> Path:
    return part.with_name(part.name + ".from")


def _remember(part: Path, url: str, headers: http.client.HTTPMessage) -> None:
    """Note which version of which address ``part`` holds, so that it is never continued with another."""
    version = headers.get("ETag") or headers.get("Last-Modified")
    try:
        _validator(part).write_text(f"{url}\n{version}" if version and not version.startswith("W/") else url)
    except OSError as error:
        raise unwritable(part.parent, error) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
