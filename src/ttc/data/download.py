"""Download one file over HTTP: resumable, verified, and renamed to its final name only when complete."""

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, BinaryIO
from urllib.parse import urlsplit

import ttc
from ttc.data.location import unwritable
from ttc.errors import TTCError
from ttc.files import checksum as file_checksum

ByteProgress = Callable[[int, int | None], None]  # bytes so far, total bytes if known
PIECE = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
WEB_PAGE = "the server returned a web page instead of the file (quota, login or consent page)"
GIVE_UP = 5  # consecutive attempts without progress


class _UnusableError(Exception):
    """This URL cannot provide the file; retrying will not help."""


def download(
    urls: Sequence[str],
    target: Path,
    checksum: str | None = None,
    size: int | None = None,
    progress: ByteProgress | None = None,
    pause: float = 1.0,
    limit: int | None = None,
) -> None:
    """Download ``target`` from the first of ``urls`` that provides it; an earlier partial download is resumed.

    Args:
        urls: Mirrors of the same file, tried in order.
        target: The path to write; a partial download stays in ``<target>.part`` for the next call.
        checksum: ``"md5:…"`` or ``"sha256:…"``, if known.
        size: The exact size in bytes, if known.
        progress: Called with the bytes so far and the total bytes, if known.
        pause: Seconds to wait before the first retry, doubled at each further one.
        limit: The most bytes to accept where ``size`` is not known.

    Raises:
        TTCError: No URL provided the file, or the target cannot be written.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target.parent, error) from error
    problems = []
    for url in urls:
        problem = _from_one(url, part, checksum, size, progress, pause, size if limit is None else limit)
        if problem is None:
            part.replace(target)
            _validator(part).unlink(missing_ok=True)
            return
        problems.append(f"{urlsplit(url).netloc}: {problem}")
    if _size(part) == 0:
        part.unlink(missing_ok=True)
        _validator(part).unlink(missing_ok=True)
    raise TTCError(
        f"could not download {target.name} ({'; '.join(problems)}); run the command again to resume, "
        f"or download it in a browser from {urls[0]} and save it as {target}"
    )


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has the ``"algorithm:hex"`` checksum."""
    algorithm, _, digest = checksum.partition(":")
    return file_checksum(path, algorithm) == digest


def _from_one(
    url: str,
    part: Path,
    checksum: str | None,
    size: int | None,
    progress: ByteProgress | None,
    pause: float,
    limit: int | None,
) -> str | None:
    """Complete ``part`` from one URL; return None on success, else the reason for the failure."""
    best, idle, reason = _size(part), 0, ""
    while idle < GIVE_UP:
        if idle:
            time.sleep(pause * 2 ** (idle - 1))
        try:
            resumed = _transfer(url, part, checksum is not None, size, progress, limit)
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
            return f"its checksum is not {checksum}"
        idle += 1  # the partial download was of another file: start over
        reason = f"its checksum is not {checksum}"
    return reason


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to other web addresses only: urllib would follow one to FTP, where nothing is checked."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in {"http", "https"}:
            raise _UnusableError(f"it redirects to {urlsplit(newurl).scheme}, expected http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _transfer(
    url: str, part: Path, trusted: bool, size: int | None, progress: ByteProgress | None, limit: int | None
) -> bool:
    """Append the missing bytes to ``part``; return whether it was resumed, which is safe given a checksum or ETag."""
    offset = _size(part)
    known = _validator(part).read_text().splitlines() if _validator(part).exists() else []
    same = known[:1] == [url] and len(known) == 2
    headers = {"User-Agent": f"ttc/{ttc.__version__}"}
    if offset and (trusted or same):
        headers["Range"] = f"bytes={offset}-"
        if same:
            headers["If-Range"] = known[1]
    try:
        response = urllib.request.build_opener(_WebRedirects).open(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # no bytes beyond ours: complete already, or the wrong file
                if size is not None and offset == size:
                    return True
                part.unlink(missing_ok=True)
                raise OSError("the server rejected the request to resume, starting over") from error
            if error.code < 500 and error.code not in (408, 429):
                raise _UnusableError(f"HTTP {error.code} {error.reason}") from error
            raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, socket.gaierror):  # retrying does not help: no network, or no such host
            raise _UnusableError(f"the host cannot be found ({error.reason.strerror})") from error
        raise
    with response:
        start = offset if response.status == 206 else 0
        if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise _UnusableError("the server resumed at another offset than requested")
        if response.headers.get_content_type() == "text/html":
            raise _UnusableError(WEB_PAGE)
        length = response.headers.get("Content-Length")
        if length is not None and not (length.isascii() and length.isdigit() and len(length) < 20):
            raise _UnusableError(f"the server sent an invalid Content-Length, {length[:40]!r}")
        total = start + int(length) if length is not None else size
        if size is not None and total is not None and total != size:
            raise _UnusableError(f"the file has {total} bytes instead of {size}")
        if limit is not None and total is not None and total > limit:
            raise _UnusableError(f"the file has {total} bytes, at most {limit} were expected")
        _record_validator(part, url, response.headers)
        try:
            file = part.open("ab" if start else "wb")
        except OSError as error:
            raise unwritable(part.parent, error) from error
        with file:
            done = _copy(response, file, start, total, progress, limit)
    if total is not None and done < total:
        raise OSError(f"the connection ended after {done} of {total} bytes")
    return start > 0


def _copy(
    response: http.client.HTTPResponse,
    file: BinaryIO,
    start: int,
    total: int | None,
    progress: ByteProgress | None,
    limit: int | None,
) -> int:
    done = start
    while piece := response.read(PIECE):
        if limit is not None and done + len(piece) > limit:
            file.truncate(0)  # these are not the bytes of the file
            raise _UnusableError(f"the server sends more than the {limit} bytes expected")
        if done == 0 and piece.lstrip()[:16].lower().startswith((b"<!doctype html", b"<html")):
            raise _UnusableError(WEB_PAGE)
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


def _record_validator(part: Path, url: str, headers: http.client.HTTPMessage) -> None:
    """Record the URL and version of ``part``, so that it is never resumed with the bytes of another file."""
    version = headers.get("ETag") or headers.get("Last-Modified")
    try:
        _validator(part).write_text(f"{url}\n{version}" if version and not version.startswith("W/") else url)
    except OSError as error:
        raise unwritable(part.parent, error) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
