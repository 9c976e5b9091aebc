"""The long trials: memory over 100,000 images, thousands of fuzzed calls, and kill -9 at every stage of the commands.

``pytest -m slow -s tests/test_soak.py`` prints a table with one row per trial.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import ttc
from tests.bench.conftest import made_place
from ttc.bench import Store
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.deploy import Guard, Policy
from ttc.models import embedded

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="reads /proc of Linux")]
TABLE: list[tuple[str, str, str]] = []
IMAGES = int(os.environ.get("TTC_SOAK_IMAGES", "100000"))
CALLS = int(os.environ.get("TTC_SOAK_CALLS", "20000"))
KILLS = int(os.environ.get("TTC_SOAK_KILLS", "10"))


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the table at the end."""
    yield
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print("\n\n| trial | size | result |\n|---|---|---|")
        for row in TABLE:
            print(f"| {' | '.join(row)} |")


def resident() -> int:
    """Bytes of memory that this process uses now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("small", [False, True, "window"])
def test_memory_is_flat(small: bool | str) -> None:
    """After a tenth of the stream, the resident memory grows by less than 5 % until its end."""
    data = embedded_images()
    images = as_tensor(data.pixels(range(2000)))
    size = 16 if small else 100
    guard = Guard(ttc.adapt(embedded(), "ttc", small_batches=small))
    count = IMAGES if not small else IMAGES // 5  # smaller batches take longer
    start = 0
    for done in range(0, count, size):
        if done >= count // 10 and not start:
            start = resident()
        at = done % (len(images) - size)
        guard(images[at : at + size])
    growth = resident() / start - 1
    TABLE.append((f"memory, guarded TTC, small_batches={small}", f"{count:,} images", f"{growth:+.1%}"))
    assert growth < 0.05


EXTREMES: list[Callable[[Tensor], Tensor]] = [
    *(lambda x: x, lambda x: x[:1], lambda x: x * 0, lambda x: x * 4, lambda x: x * 1e6, lambda x: x * 1e20),
    *(lambda x: x * 1e38, lambda x: x * float("nan"), lambda x: x[:0], lambda x: x[0], lambda x: x[:, :2]),
    *(lambda x: x.double(), lambda x: x.half(), lambda x: x.byte(), lambda x: -x, torch.rand_like, torch.randn_like),
    *(lambda x: x[..., :-1], lambda x: x.to_sparse(), lambda x: x.permute(0, 1, 3, 2), lambda x: x.to("meta")),
]


def test_fuzzed_calls_predict_or_reject() -> None:
    """Each call returns finite logits or raises TTCError and changes nothing; afterwards good batches are predicted."""
    random.seed(0)
    torch.manual_seed(0)
    images = torch.rand(64, 3, 8, 8)
    outcomes: Counter[str] = Counter()
    methods = ["source", "norm", "norm-ema", "norm-blend", "t3a", "tent", "eta", "tipi", "ttc"]
    while outcomes.total() < CALLS:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)),
            *(torch.nn.Flatten(), torch.nn.Linear(8, 5)),
        )
        small = random.choice([False, True, "window", "blend"])
        adapter = ttc.adapt(model, random.choice(methods), small_batches=small)
        call = random.choice([adapter, Guard(adapter, Policy(check_every=8, max_rejections=10**9))])
        for _ in range(50):
            first = random.randrange(56)
            batch = random.choice(EXTREMES)(images[first : first + 8])
            before = adapter.state_dict()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    assert bool(call(batch).isfinite().all())
                    outcomes["predicted"] += 1
                except ttc.TTCError:
                    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)
                    outcomes["rejected"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert bool(adapter(images).isfinite().all())
    TABLE.append(("fuzzed calls", f"{outcomes.total():,} calls", str(dict(outcomes))))
    assert min(outcomes["predicted"], outcomes["rejected"]) > CALLS // 10


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "ttc", *arguments]


def killed_then_finished(folder: Path, arguments: list[str]) -> tuple[int, float]:
    """Run a command once whole elsewhere to learn its time, kill it at random moments, then let it finish."""
    environment = {**os.environ, "TTC_DATA": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    source = str(Path(ttc.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([source, str(folder), os.environ.get("PYTHONPATH", "")])
    lived, killed = 60.0, 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            command(folder, *arguments), cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        begin = time.monotonic()
        try:
            process.wait(random.uniform(0.5, lived))
            lived = max(1.0, time.monotonic() - begin)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
        _, errors = process.communicate()
        assert b"Traceback" not in errors, errors.decode()
    begin = time.monotonic()
    final = subprocess.run(command(folder, *arguments), cwd=folder, env=environment, capture_output=True, check=False)
    assert final.returncode == 0, final.stderr.decode()
    return killed, time.monotonic() - begin


def test_killed_runs_leave_every_cell_or_none(tmp_path: Path) -> None:
    """``ttc run``: after the kills, the store contains each cell once, finished."""
    made_place(tmp_path)
    grid = ["--dataset", "folder:pictures", "--model", "small_nets:small", "--images", "12", "--batch-size", "5"]
    grid += ["--methods", "source,norm,ttc", "--corruptions", "fog,contrast", "--store", "a.sqlite", "--workers", "2"]
    killed, seconds = killed_then_finished(tmp_path, ["run", *grid])
    with Store(tmp_path / "a.sqlite", readonly=True) as store:
        rows = list(store.rows())
    TABLE.append(("kill -9 during ttc run", f"{killed} kills", f"{len(rows)} cells, last run {seconds:.0f} s"))
    assert len(rows) == 6
    assert {row.status for row in rows} == {"finished"}


def test_killed_corruption_equals_an_undisturbed_one(tmp_path: Path) -> None:
    """``ttc corrupt``: the files are those of a run that was never killed, to the byte."""
    records = np.random.default_rng(0).integers(0, 256, (1500, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    found = {}
    for name in ("killed", "whole"):
        folder = tmp_path / name
        (folder / "cifar").mkdir(parents=True)
        (folder / "cifar" / "test_batch.bin").write_bytes(records.tobytes())
        arguments = ["corrupt", "cifar", "out", "--corruptions", "fog,contrast", "--severities", "1,5"]
        if name == "killed":
            killed, seconds = killed_then_finished(folder, arguments)
        else:
            subprocess.run(command(folder, *arguments), cwd=folder, check=True, capture_output=True)
        found[name] = {path.name: path.read_bytes() for path in sorted((folder / "out").glob("*.npy"))}
    TABLE.append(("kill -9 during ttc corrupt", f"{killed} kills", f"equal to the byte, last run {seconds:.0f} s"))
    assert found["killed"] == found["whole"]
    assert len(found["whole"]) == 3
