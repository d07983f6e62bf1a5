"""The benchmark of memory estimates: what it sees of processes, the jobs it draws, its figures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.memory_estimate.benchmark import Seen, summary
from benchmarks.memory_estimate.footprint import Footprint, JobMemory
from benchmarks.memory_estimate.job_shapes import JobShape, cases, drawn
from elastichost.config.job import load_job
from elastichost.tuner.memory.peak_memory import MemoryEstimate, MemoryPart

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
    assert 40 * MB < first.anonymous < 60 * MB  # what is shared is none of it
    assert first.by_role["supervisor"] > 40 * MB
    say(child, "less")
    memory.look()
    assert memory.peak == first
    (tmp_path / "rows").write_bytes(b"x" * 60 * MB)
    memory.look()
    assert memory.peak.arena == pytest.approx(60 * MB, abs=64 * 1024)
    assert memory.peak.anonymous < 20 * MB


def test_a_process_that_has_gone_is_no_peak(child: subprocess.Popen[str], tmp_path: Path) -> None:
    say(child, "ready")
    memory = JobMemory(child.pid, tmp_path)
    child.kill()
    child.wait()
    memory.look()
    assert memory.peak is None or memory.peak.total == 0


def seen(predicted: int, observed: int) -> Seen:
    estimate = MemoryEstimate("training", (MemoryPart("rows", predicted * 10**6),))
    return Seen(JobShape(f"{predicted}/{observed}"), estimate, Footprint(0, 0, observed * 10**6, {}))


def test_figures_are_of_errors() -> None:
    found = summary([seen(110, 100), seen(95, 100), seen(100, 100), seen(80, 100), seen(130, 100)])
    assert (found.jobs, found.p50, found.max_under, found.max_over) == (
        5,
        pytest.approx(0.1),
        pytest.approx(0.2),
        pytest.approx(0.3),
    )
    assert found.by_job["80/100"] == (80.0, 100.0)
    with pytest.raises(ValueError, match="no jobs"):
        summary([])


@pytest.mark.parametrize("shape", [*(s for s in cases() if s.data == "synthetic"), *drawn(12, 3)], ids=lambda s: s.name)
def test_job_files_are_legal(shape: JobShape, tmp_path: Path) -> None:
    if shape.data == "synthetic":
        path = tmp_path / "job.toml"
        path.write_text(shape.text(tmp_path))
        assert load_job(path, environ={}).train.batch_size == shape.batch


def test_every_job_has_a_name_of_its_own() -> None:
    names = [shape.name for shape in (*cases(), *drawn(20, 0), *drawn(20, 1))]
    assert len(set(names)) == len(names)
