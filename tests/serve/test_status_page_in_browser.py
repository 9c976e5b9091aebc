"""The status page in a real browser, of a real server."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.chromium import Page, browser, executable
from tests.serve.conftest import Client, Start, in_json, png
from ttc.serve.serve_settings import digest_token

pytestmark = pytest.mark.skipif(
    executable() is None, reason="no Chromium is installed; install chromium, or name one with TTC_CHROMIUM"
)
TOKEN = "a-token-of-this-test"
DRAWN = "document.readyState === 'complete' && document.documentElement.dataset.drawn === 'yes'"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def visit(page: Page, client: Client, width: int = 1200) -> None:
    page._send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 640)
    page._send("Page.navigate", url=client.url + "/")
    wait(page, f"location.href.startsWith('{client.url}') && {DRAWN}")


def wait(page: Page, condition: str) -> None:
    end = time.monotonic() + 30
    while not page.run(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.05)


def problems(page: Page, client: Client) -> list[str]:
    """What the page did wrong: everything but requests to its own server."""
    return [problem for problem in page.problems if f"asked the network for {client.url}" not in problem]


def test_streams_modes_and_signals_over_time(page: Page, start: Start) -> None:
    with start() as client:
        for first in range(0, 80, 40):
            batch = in_json(*map(png, range(first, first + 40)))
            assert client.send("/streams/camera-7/predict", batch, "application/json").status == 200
        page.problems.clear()
        visit(page, client)
        names = page.run("[...document.querySelectorAll('article h2')].map(node => node.textContent)")
        assert names == ["camera-7", "default"]
        camera = "document.querySelector('[data-stream=camera-7]')"
        assert page.run(f"{camera}.querySelector('.mode').textContent") == "source"  # until it is overtaken
        assert re.match(r"80 images, 80 not saved yet", page.run(f"{camera}.querySelector('.facts').textContent"))
        signals = page.run(f"[...{camera}.querySelectorAll('figure')].map(node => node.dataset.signal)")
        assert signals == ["confidence", "entropy", "disagreement", "effective_classes"]
        line = page.run(f"{camera}.querySelector('polyline').getAttribute('points')")
        assert len(line.split()) >= 2
        assert page.run(f"{camera}.querySelector('polyline').className.baseVal") == "source"
        assert "embedded with ttc, guarded" in page.run("document.getElementById('server').textContent")
        assert page.run("document.getElementById('login').hidden")
        before = page.run(f"{camera}.querySelector('.facts').textContent")
        client.send("/streams/camera-7/predict", png())
        wait(page, f"{camera}.querySelector('.facts').textContent.startsWith('81 images')")  # by itself
        assert before.startswith("80 images")
        visit(page, client, width=360)
        assert page.run("document.documentElement.scrollWidth") <= 360
        assert problems(page, client) == []


def test_the_page_asks_for_the_token(page: Page, start: Start, tmp_path: Path) -> None:
    with start(token_digest=digest_token(TOKEN)) as client:
        visit(page, client)
        assert page.run("document.querySelectorAll('article').length") == 0
        assert not page.run("document.getElementById('login').hidden")
        assert page.run("document.getElementById('rejected').hidden")
        give = "document.getElementById('token').value = '{}'; document.querySelector('#login button').click()"
        page.run(give.format("wrong"))
        wait(page, "!document.getElementById('rejected').hidden")
        page.run(give.format(TOKEN))
        wait(page, "document.querySelectorAll('article').length === 1")
        assert page.run("document.getElementById('login').hidden")
        assert TOKEN not in page.run("document.documentElement.outerHTML")
    wait(page, "document.getElementById('server').textContent === 'the server does not respond'")
