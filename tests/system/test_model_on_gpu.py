"""Rows in memory of a GPU (`resources.model_memory = "gpu"`) in whole runs: kills at each step, of worker, holder and
supervisor. The kernels run in Triton's interpreter, and an anonymous file stands for the memory of the GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elastichost.arena.host import arena_root
from elastichost.arena.recovery.device_residence import read_residence
from elastichost.errors import ExitCode
from elastichost.gpu.memory.held_memory import is_held
from elastichost.plan import ProcessId
from elastichost.runs.events import ArenaRejected, ArenaReused, CheckpointWritten, ProcessLost, RolledBack
from elastichost.wire.crash import VARIABLE
from tests.gpu.memory.test_held_memory import holders_of, wait_until
from tests.host.nvml.recorded import ONE_BUSY
from tests.system.gpu_runs import POINTS_OF_MODEL, GpuRun, gpu_environment, gpu_job
from tests.system.journals import events_of
from tests.system.test_run import ROOT, folder

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]

__all__ = ["folder"]

ROWS = 15_000  # the interpreter trains about a thousand in a second
ON_GPU = 'workers = 1\ngpus = 1\nmodel_memory = "gpu"'
FIRST = ProcessId("worker", 0, 1)


def started(folder: Path, more: dict[str, str] | None = None, **settings: Any) -> GpuRun:
    job = gpu_job(folder, ON_GPU, **{"rows": ROWS, **settings})
    job.write_text(job.read_text().replace("[supervision]\n", "[supervision]\nkeep_arena_s = 60\n"))
    return GpuRun(folder, job, state=ONE_BUSY, environment=more or {})


def finished(run: GpuRun) -> dict[str, Any]:
    """The result of a run that has trained every sample once, and left nothing."""
    shown = run.finish()
    assert run.process.returncode == 0, shown
    result: dict[str, Any] = json.loads((run.directory / "result.json").read_text())
    assert result["samples"] == {"planned": ROWS, "trained": ROWS, "skipped": 0, "quarantined": 0}
    assert result["test"]["auc"] > 0.68, "0.71 with the model in memory of the host"
    assert not list(arena_root().iterdir())
    logs = "".join(path.read_text() for path in (run.directory / "logs").glob("worker-*.log"))
    assert "rows are looked up on the CPU" not in logs
    return result


def journal_of(run: GpuRun) -> Path:
    return run.directory / "journal.jsonl"


def training(run: GpuRun, samples: int = 1) -> int:
    """Waits until the worker trains with rows in memory of the GPU. Returns its pid."""
    status = run.wait(
        lambda status: status.samples_trained >= samples and any(one.state == "training" for one in status.processes)
    )
    (arena,) = arena_root().iterdir()
    assert read_residence(arena) is not None
    return next(one.pid or 0 for one in status.processes if one.role == "worker")


def kill_holder() -> None:
    (arena,) = arena_root().iterdir()
    (holder,) = holders_of(arena)
    os.kill(holder.pid, signal.SIGKILL)
    wait_until(lambda: not holders_of(arena))  # a stopped worker does not reap it


@pytest.mark.parametrize("point", POINTS_OF_MODEL)
def test_a_worker_that_is_killed_at_any_step_has_a_successor(folder: Path, point: str) -> None:
    run = started(folder, more={VARIABLE: point}, every_s=1)
    finished(run)
    assert [event.process for event in events_of(journal_of(run), ProcessLost)] == [FIRST]
    assert events_of(journal_of(run), RolledBack) == []


def test_rows_are_written_back_when_the_last_worker_is_killed_as_it_leaves(folder: Path) -> None:
    """The final checkpoint finds no worker alive, so a process of its own writes the rows back."""
    run = started(folder, more={VARIABLE: "worker.model.written"}, every_s=0)
    training(run, 3_000)
    run.process.send_signal(signal.SIGINT)
    shown = run.finish()
    assert run.process.returncode == ExitCode.STOPPED_RESUMABLE, shown
    assert (run.directory / "logs" / "write-back.log").read_text() == ""
    (written,) = events_of(journal_of(run), CheckpointWritten)
    assert 3_000 <= written.samples < ROWS
    finished(run.resumed())


def test_rows_that_are_lost_take_the_run_back_to_its_checkpoint(folder: Path) -> None:
    run = started(folder, every_s=1)
    pid = training(run)
    run.wait(lambda _: bool(events_of(journal_of(run), CheckpointWritten)))
    os.kill(pid, signal.SIGSTOP)
    kill_holder()
    os.kill(pid, signal.SIGKILL)
    finished(run)
    (back,) = events_of(journal_of(run), RolledBack)
    assert "no process holds the model" in back.entry.reason
    assert back.entry.checkpoint


def test_a_killed_holder_changes_nothing_while_the_worker_lives(folder: Path) -> None:
    run = started(folder)
    training(run)
    kill_holder()
    (arena,) = arena_root().iterdir()
    resident = read_residence(arena)
    assert resident is not None
    run.wait(lambda _: is_held(arena, resident.token))
    os.kill(training(run), signal.SIGKILL)
    finished(run)
    assert events_of(journal_of(run), RolledBack) == []


def test_a_resumed_run_takes_the_rows_over_in_the_memory_of_the_gpu(folder: Path) -> None:
    run = started(folder)
    training(run, 3_000)
    run.process.kill()
    run.process.communicate()
    resumed = run.resumed()
    finished(resumed)
    assert len(events_of(journal_of(run), ArenaReused)) == 1
    assert events_of(journal_of(run), ArenaRejected) == []


def test_a_resumed_run_without_the_memory_begins_from_a_checkpoint(folder: Path) -> None:
    run = started(folder, every_s=1)
    training(run)
    run.wait(lambda _: bool(events_of(journal_of(run), CheckpointWritten)))
    run.process.kill()
    run.process.communicate()
    kill_holder()
    finished(run.resumed())
    (rejected,) = events_of(journal_of(run), ArenaRejected)
    assert "no process holds its model" in rejected.reason


def test_no_sample_is_lost_or_doubled_under_kills(folder: Path) -> None:
    told = folder / "nvml.json"
    told.write_text(json.dumps({"state": ONE_BUSY}))
    job = gpu_job(folder, ON_GPU, rows=ROWS, every_s=2)
    command = [sys.executable, "-m", "elastichost", "chaos", str(job), "--run-dir", str(folder / "run"), "--json"]
    kinds = [word for role in ("worker", "reader", "server") for word in ("--fault", f"kill-{role}")]
    done = subprocess.run(
        [*command, *kinds, "--for", "25s", "--every", "3s", "--no-twins", "--seed", "4"],
        cwd=ROOT,
        env=gpu_environment(told),
        capture_output=True,
        text=True,
        timeout=280.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["violations"] == []
    assert facts["kills"] >= 2
    assert facts["invariants"]["A"] and facts["invariants"]["O"]
