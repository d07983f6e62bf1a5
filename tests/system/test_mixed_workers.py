"""One run with two GPUs and a CPU worker: kills of each kind, and a GPU that falls off the bus."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from elastichost.plan import ProcessId
from elastichost.runs.events import GpuLost, PlanChanged, ProcessLost, ProcessReady
from tests.system.gpu_runs import GpuRun, gpu_job
from tests.system.journals import events_of
from tests.system.test_run import SLOW_MODEL, folder

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(200)]

__all__ = ["folder"]

ROWS = 300_000


def test_every_sample_is_trained_once_by_workers_of_both_kinds(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL)  # otherwise the CPU worker is done before the others have begun
    job = gpu_job(folder, "workers = 3\ngpus = 2", rows=ROWS, build=f"{folder}/slow.py:build")
    run = GpuRun(folder, job, gpus=2)
    journal = run.directory / "journal.jsonl"

    def kill(name: str) -> None:
        """Kills a worker that trains, and waits until its successor trains."""
        status = run.wait(lambda status: any(one.name == name and one.state == "training" for one in status.processes))
        pid = next(one.pid for one in status.processes if one.name == name)
        os.kill(pid, signal.SIGKILL)
        run.wait(
            lambda status: any(
                one.name == name and one.pid != pid and one.state == "training" for one in status.processes
            )
        )

    kill("worker-0")
    kill("worker-2")
    run.wait(lambda status: any(one.name == "worker-1" and one.state == "training" for one in status.processes))
    run.tell(gpus=2, lost=[1])
    run.wait(lambda status: all(one.name != "worker-1" for one in status.processes))
    shown = run.finish()
    assert run.process.returncode == 0, shown
    assert "GPU 1 (NVIDIA H200) is lost" in shown
    result = json.loads((run.directory / "result.json").read_text())
    assert result["samples"] == {"planned": ROWS, "trained": ROWS, "skipped": 0, "quarantined": 0}
    assert [event.gpu for event in events_of(journal, GpuLost)] == [1]
    lost = sorted(event.process for event in events_of(journal, ProcessLost))
    assert lost == [ProcessId("worker", index, 1) for index in (0, 1, 2)]
    assert result["processes"]["restarts"] == 2, "the worker of the lost GPU has no successor"
    assert ProcessId("worker", 1, 2) not in [event.process for event in events_of(journal, ProcessReady)]
    plan = events_of(journal, PlanChanged)[-1]
    assert plan.processes == () or "worker-1" not in plan.processes
    logs = {path.name: path.read_text() for path in (run.directory / "logs").glob("worker-*.log")}
    assert not any("rows are looked up on the CPU" in text for text in logs.values())
