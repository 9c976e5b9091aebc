"""A Chromium without a window, driven by its own protocol over a pipe: no driver, no package, no port."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--disable-extensions", "--mute-audio", "--remote-debugging-pipe"),
)
# the browser reads commands from descriptor 3 and replies on 4
_LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def executable() -> str | None:
    """The path of an installed Chromium; TTC_CHROMIUM names another."""
    return os.environ.get("TTC_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One open page."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._pending, self._number, self._session = b"", 0, ""
        self.problems: list[str] = []  # exceptions, console errors, failed or remote requests
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file at a window size and in a colour scheme, and wait until its plots are drawn."""
        phone = width < 640
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._send("Page.navigate", url=path.absolute().as_uri())
        ready = "document.readyState === 'complete' && location.protocol === 'file:'"
        while not self.run(f"{ready} && document.documentElement.dataset.drawn === 'yes'"):  # its plots are drawn
            pass

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def point(self, selector: str, place: int = 0, click: bool = False) -> None:
        """Rest the pointer on an element in the middle of the window, and click it."""
        box = self.run(
            f"(() => {{ const node = document.querySelectorAll({json.dumps(selector)})[{place}];"
            " node.scrollIntoView({block: 'center', behavior: 'instant'}); const box = node.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        where = {"x": box[0], "y": box[1]}
        self._send("Input.dispatchMouseEvent", type="mouseMoved", **where)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self._send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A screenshot of the page, down to its end."""
        found = self._send("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(found["data"]))

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self._send("Page.printToPDF")["data"])

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self._send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}}

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message()
            if reply.get("id") == self._number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                found: dict[str, Any] = reply["result"]
                return found
            self._note(reply)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser is gone"
            self._pending += piece
        text, _, self._pending = self._pending.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        kind, values = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.problems.append(str(values["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and values["type"] in {"error", "warning", "assert"}:
            self.problems.append(str(values["args"]))
        elif kind == "Log.entryAdded" and values["entry"]["level"] in {"error", "warning"}:
            self.problems.append(values["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and values["request"]["url"].startswith("http"):
            self.problems.append(f"asked the network for {values['request']['url']}")


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A fresh browser with one page, ended with the block."""
    program = executable()
    assert program is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
    command = [sys.executable, "-c", _LAUNCH, *map(str, high), program, *FLAGS, f"--user-data-dir={profile}"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command, "about:blank"], pass_fds=high, stdin=quiet, stdout=quiet, stderr=quiet)
    for end in (theirs_in, theirs_out, *high):
        os.close(end)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)
        os.close(ours_in)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
