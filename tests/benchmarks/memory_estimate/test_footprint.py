"""Measuring the memory of processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.memory_estimate.footprint import JobMemory

MB = 1 << 20
CHILD = f"""
import mmap, sys
private = bytearray(b"x" * (40 * {MB}))
shared = mmap.mmap(-1, 30 * {MB})
shared[:] = b"x" * len(shared)
print("ready", flush=True)
sys.stdin.readline()
del private
print("less", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.communicate()


def say(child: subprocess.Popen[str], word: str) -> None:
    """Lets the child continue until it prints this word; "ready" is its first one."""
    assert child.stdin is not None and child.stdout is not None
    if word != "ready":
        child.stdin.write("\n")
        child.stdin.flush()
    assert child.stdout.readline().strip() == word


def test_the_peak_of_processes_and_of_the_arena_is_seen(child: subprocess.Popen[str], tmp_path: Path) -> None:
    say(child, "ready")
    (tmp_path / "rows").write_bytes(b"x" * 10 * MB)
    memory = JobMemory(child.pid, tmp_path, with_roles=True)
    memory.look()
    assert memory.peak is not None
    first = memory.peak
    assert first.arena == pytest.approx(10 * MB, abs=64 * 1024)
    assert 40 * MB < first.anonymous < 60 * MB  # shared memory does not count
    assert first.by_role["supervisor"] > 40 * MB
    say(child, "less")
    memory.look()
    assert memory.peak == first
    (tmp_path / "rows").write_bytes(b"x" * 60 * MB)
    memory.look()
    assert memory.peak.arena == pytest.approx(60 * MB, abs=64 * 1024)
    assert memory.peak.anonymous < 20 * MB


def test_a_process_that_has_ended_does_not_raise_the_peak(child: subprocess.Popen[str], tmp_path: Path) -> None:
    say(child, "ready")
    memory = JobMemory(child.pid, tmp_path)
    child.kill()
    child.wait()
    memory.look()
    assert memory.peak is None or memory.peak.total == 0
