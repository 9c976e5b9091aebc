"""Kill a command at every stage, finish it, and compare with an undisturbed run: ``python -m tests.kill_trials JSON``.

The trials run in children forked after the imports, which take longer than the commands. A stage is a file operation in
the working folder, seen by an audit hook; half of the kills come at such moments, half at random ones.
"""

import contextlib
import hashlib
import importlib
import json
import os
import pkgutil
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "sqlite3.connect"}


def import_everything() -> None:
    """Import all modules of the package that can be imported, so that a forked command starts at once."""
    import ttc

    for module in pkgutil.walk_packages(ttc.__path__, "ttc."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def count_stages(folder: Path, kill_at: int, counter: Path) -> None:
    """Count file operations in ``folder`` from now on, and kill this process at the given one."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in FILE_EVENTS or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = Path(os.fsdecode(arguments[0]))
        reads = event == "open" and isinstance(arguments[1], str) and arguments[1] in ("r", "rb")
        if reads or path == counter or folder not in (folder / path).parents:
            return
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if kill_at == 0:
            counter.write_text(str(seen))

    sys.addaudithook(hook)


def run_command(folder: Path, arguments: list[str], kill_at: int, kill_after: float) -> tuple[bool, str]:
    """Run a command in a fork; return whether it was killed, and what it printed."""
    output = folder.with_suffix(".txt")
    pid = os.fork()
    if pid == 0:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.chdir(folder)
        sys.argv = ["ttc", *arguments]
        count_stages(folder, kill_at, folder.with_suffix(".count"))
        from ttc.cli.app import main

        try:
            main()
        except SystemExit as leave:
            os._exit(leave.code if isinstance(leave.code, int) else int(leave.code is not None))
        os._exit(0)
    end = time.monotonic() + kill_after
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.005)
    else:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    printed = output.read_text()
    killed = os.WIFSIGNALED(status)
    if "Traceback" in printed or (not killed and status != 0):
        raise SystemExit(f"{arguments} ended with status {status}:\n{printed}")
    return killed, printed


def results(folder: Path, patterns: list[str]) -> dict[str, str]:
    """Return the checksums of files, and the cells of a store with their figures."""
    found: dict[str, str] = {}
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        name = str(path.relative_to(folder))
        if path.suffix == ".sqlite":
            from ttc.bench import Store

            with Store(path, readonly=True) as store:
                found |= {f"{name} {row.protocol.hash} {row.status}": json.dumps(row.figures) for row in store.rows()}
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def trial(case: dict[str, Any], template: Path, kills: int) -> dict[str, Any]:
    """Run the trials of one command."""
    arguments, patterns = case["arguments"], case["results"]
    whole = template.with_name("whole")
    shutil.copytree(template, whole)
    begin = time.monotonic()
    run_command(whole, arguments, 0, 600)
    seconds, stages = time.monotonic() - begin, int(whole.with_suffix(".count").read_text())
    wanted = results(whole, patterns)
    at = sorted({1 + round(i * (stages - 1) / max(1, kills - 1)) for i in range(kills)})
    moments = [(k, 600.0) for k in at] + [(-1, random.uniform(0, seconds)) for _ in range(kills)]
    killed = 0
    for kill_at, kill_after in moments:
        folder = template.with_name("killed")
        shutil.copytree(template, folder)
        killed += run_command(folder, arguments, kill_at, kill_after)[0]
        run_command(folder, arguments, -1, 600)
        found = results(folder, patterns)
        if found != wanted:
            raise SystemExit(f"killed at operation {kill_at}, second {kill_after:.2f}: {found} instead of {wanted}")
        shutil.rmtree(folder)
    return {"stages": stages, "killed": killed, "of": len(moments), "results": len(wanted)}


def main() -> None:
    """Read a case as JSON, run its trials, print a JSON object."""
    case = json.loads(sys.argv[1])
    random.seed(0)
    import_everything()
    if "url" in case:
        from ttc.data.catalogue import SOURCES, DataFile, Source

        parts = tuple(DataFile(*part) for part in case["parts"])
        SOURCES["small"] = Source("Small", "small.tar.gz", (case["url"],), None, case["checksum"], ".", parts)
    if "checkpoint_seconds" in case:
        from ttc.deploy import job_results

        job_results.CHECKPOINT_SECONDS = case["checkpoint_seconds"]
    print(json.dumps(trial(case, Path(case["template"]), case["kills"])))


if __name__ == "__main__":
    main()
