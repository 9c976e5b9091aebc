"""The allocator of worker processes."""

import platform
import subprocess
import sys

import pytest

from ttc.bench.allocator import reuse_memory

CODE = """
import resource, torch
from ttc.bench.allocator import reuse_memory
assert reuse_memory()

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.empty(1 << bits).fill_(1) for bits in (25, 24, 25, 23, 24)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(*(faults_of_a_step() for _ in range(6)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other settings")
def test_freed_memory_is_used_again() -> None:
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    first, *_, last = map(int, found.stdout.split())
    assert last < first / 2  # without the settings each step takes its pages anew


def test_other_systems_keep_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not reuse_memory()
