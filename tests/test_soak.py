"""The long trials: memory over 100,000 images, thousands of fuzzed calls, and kill -9 at every stage of the commands.

``pytest -m slow -s tests/test_soak.py`` prints a table with one row per trial; ``TTC_SOAK_IMAGES``, ``TTC_SOAK_CALLS``
and ``TTC_SOAK_KILLS`` set the sizes.
"""

import ctypes
import gc
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ttc
from tests.bench.conftest import made_place
from tests.data.conftest import Server
from tests.data.conftest import server as server  # the fixture
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.deploy import Guard, Policy
from ttc.models import build, embedded

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, calls malloc_trim")]
TABLE: list[tuple[str, str, str]] = []
IMAGES = int(os.environ.get("TTC_SOAK_IMAGES", "100000"))
CALLS = int(os.environ.get("TTC_SOAK_CALLS", "20000"))
KILLS = int(os.environ.get("TTC_SOAK_KILLS", "10"))  # at stages, and as many at random moments
ROOT = Path(__file__).parents[1]


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
    """Bytes of memory in use: free blocks that malloc keeps for later are returned first."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def small_net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)),
        *(torch.nn.Flatten(), torch.nn.Linear(8, 5)),
    )


@pytest.mark.parametrize("small", [False, True, "window"])
@pytest.mark.parametrize("network", ["ResNet-20", "small"])
def test_memory_is_flat(network: str, small: bool | str) -> None:
    """After a fifth of the stream, the memory in use grows by less than 5 % until its end."""
    count = IMAGES if network == "small" else IMAGES // 20  # the larger network takes longer
    images = as_tensor(embedded_images().pixels(range(1000))) if network != "small" else torch.rand(1000, 3, 8, 8)
    size = 16 if small else 100
    adapter = ttc.adapt(small_net() if network == "small" else embedded(), "ttc", small_batches=small)
    call = adapter if network == "small" else Guard(adapter)  # the guard falls back to the source of an untrained one
    start = 0
    for done in range(0, count, size):
        if done >= count // 5 and not start:
            start = resident()
        at = done % (len(images) - size)
        call(images[at : at + size])
    growth = resident() / start - 1
    name = f"memory, {'guarded' if call is not adapter else 'unguarded'} TTC, {network}, small_batches={small}"
    TABLE.append((name, f"{count:,} images", f"{growth:+.2%}"))
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
        small: bool | str = random.choice(["average", "window", "blend"]) if random.random() < 0.75 else False
        adapter = ttc.adapt(small_net(), random.choice(methods), small_batches=small)
        guard = Guard(adapter, Policy(check_every=8, max_rejections=10**9))
        call: Callable[[Tensor], Tensor] = adapter if random.random() < 0.5 else guard
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(50):
                first = random.randrange(56)
                batch = random.choice(EXTREMES)(images[first : first + 8])
                before = adapter.state_dict()
                try:
                    assert bool(call(batch).isfinite().all())
                    outcomes["predicted"] += 1
                except ttc.TTCError:
                    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)
                    outcomes["rejected"] += 1
            assert bool(adapter(images).isfinite().all())
    TABLE.append(("fuzzed calls", f"{outcomes.total():,} calls", str(dict(outcomes))))
    assert min(outcomes["predicted"], outcomes["rejected"]) > CALLS // 10


def make_cifar(folder: Path, names: list[str], count: int) -> None:
    """Write files in the layout of CIFAR-10 with random pixels."""
    folder.mkdir(parents=True)
    for seed, name in enumerate(names):
        records = np.random.default_rng(seed).integers(0, 256, (count, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(count) % 2
        (folder / name).write_bytes(records.tobytes())


def prepare_run(folder: Path) -> dict[str, Any]:
    made_place(folder)
    grid = ["--dataset", "imagefolder:photos", "--model", "small_nets:small", "--images", "12", "--batch-size", "5"]
    grid += ["--methods", "source,norm,ttc", "--corruptions", "fog,contrast", "--store", "a.sqlite", "--workers", "1"]
    return {"arguments": ["run", *grid], "results": ["a.sqlite"]}


def prepare_corrupt(folder: Path) -> dict[str, Any]:
    make_cifar(folder / "cifar", ["test_batch.bin"], 100)
    arguments = ["corrupt", "cifar", "out", "--corruptions", "fog,contrast", "--severities", "1,5"]
    return {"arguments": arguments, "results": ["out/*.npy"]}


def prepare_adapt(folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    weights = build("resnet20", 3).state_dict()
    weights["linear.weight"] /= 100
    torch.save(weights, folder / "weights.pt")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), np.uint8)
    for number, image in enumerate(pixels):
        path = folder / "pets" / ("cat", "dog", "emu")[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    arguments = ["adapt", "resnet20", "pets", "--checkpoint", "weights.pt", "--batch-size", "8", "--out", "adapted"]
    files = ["predictions.csv", "summary.json", "events.jsonl"]
    return {"arguments": arguments, "results": [f"adapted/{name}" for name in files], "checkpoint_seconds": 0.0}


def prepare_train(folder: Path) -> dict[str, Any]:
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    make_cifar(folder / "data" / "cifar-10-batches-bin", names, 16)
    arguments = ["train", "--data", "data", "--model", "wrn-16-1", "--epochs", "3", "--batch-size", "20"]
    return {"arguments": [*arguments, "--no-corruptions", "--out", "out"], "results": ["out/*.safetensors"]}


def prepare_fetch(folder: Path, server: Server) -> dict[str, Any]:
    files = {f"small/{i}.bin": os.urandom(200_000) for i in range(5)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    server.content["small.tar.gz"] = archive = buffer.getvalue()
    parts = [(name, len(content), f"md5:{hashlib.md5(content).hexdigest()}") for name, content in files.items()]
    return {
        "arguments": ["data", "fetch", "small", "--data", "data"],
        "results": ["data/small/*"],
        "url": server.url("good", "small.tar.gz"),
        "checksum": f"md5:{hashlib.md5(archive).hexdigest()}",
        "parts": parts,
    }


@pytest.mark.parametrize("command", ["run", "corrupt", "adapt", "train", "data fetch"])
def test_a_killed_command_finishes_with_the_same_results(command: str, tmp_path: Path, server: Server) -> None:
    """``kill -9`` before each file operation and at random moments; the same command then finishes the work."""
    template = tmp_path / "template"
    template.mkdir()
    prepare = {"run": prepare_run, "corrupt": prepare_corrupt, "adapt": prepare_adapt, "train": prepare_train}
    case = prepare[command](template) if command in prepare else prepare_fetch(template, server)
    case |= {"template": str(template), "kills": KILLS}
    path = [str(Path(ttc.__file__).parents[1]), str(ROOT), ".", os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    environment["TTC_DATA"] = str(tmp_path / "cache")
    words = [sys.executable, "-m", "tests.kill_trials", json.dumps(case)]
    done = subprocess.run(words, cwd=template, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    size = f"{found['killed']} kills of {found['of']} tries, {found['stages']} file operations"
    TABLE.append((f"kill -9 during ttc {command}", size, f"{found['results']} results equal"))
    assert found["killed"] >= KILLS // 2
    assert found["results"]
