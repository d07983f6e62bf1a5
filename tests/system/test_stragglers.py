"""A worker that is slowed down from outside gets smaller leases and is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastichost.plan import ProcessId
from elastichost.runs.events import LeaseGranted, ProcessKilling
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = [pytest.mark.system, pytest.mark.thorough]

STOPPED_S, RUNNING_S = 0.18, 0.02


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Stops the process for nine tenths of the time; resumes it at the end, if it still exists."""
    is_over = threading.Event()

    def cycle() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not is_over.is_set():
                os.kill(pid, signal.SIGSTOP)
                is_over.wait(STOPPED_S)
                os.kill(pid, signal.SIGCONT)
                is_over.wait(RUNNING_S)

    thread = threading.Thread(target=cycle)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("mode", ["async", "bounded", "sync"])
def test_a_hopelessly_slow_worker_is_replaced_and_that_costs_no_restart(folder: Path, mode: str) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.01"))
    template = JOB.replace("[train]\n", f'[train]\nmode = "{mode}"\n')
    template = template.replace("[supervision]\n", "[supervision]\nstraggler_s = 2\n")
    rows = 60_000 if mode == "sync" else 120_000
    run = Supervised(folder, template=template, build=f"{folder}/slow.py:build", rows=rows, restarts=0)
    run.wait_trained(1)
    run.wait_until(lambda: len(run.events(LeaseGranted)) >= 6)
    with slowed(run.pid("worker-1")):
        run.wait_until(lambda: any(event.cause == "slow" for event in run.events(ProcessKilling)))
    run.wait_ready("worker-1.2")
    code, errors = run.finish()
    assert code == 0, errors
    result = run.result()
    assert result["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    assert result["processes"]["restarts"] == 1
    (lost,) = run.lost()
    assert (lost.process, lost.state) == (ProcessId("worker", 1, 1), "killing")
    assert lost.reason.startswith("killed: replaced: its speed is")


def test_the_leases_of_a_worker_that_becomes_slow_become_smaller(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.01"))
    template = JOB.replace("[supervision]\n", "[supervision]\nstraggler_s = 0\n")
    run = Supervised(folder, template=template, build=f"{folder}/slow.py:build", rows=200_000, epochs=100)

    def sizes() -> list[int]:
        """Of the leases of worker-1, in order."""
        return [one.stop - one.start for one in run.events(LeaseGranted) if one.process.name == "worker-1"]

    run.wait_trained(1)
    run.wait_until(lambda: max(sizes(), default=0) >= 2048)
    with slowed(run.pid("worker-1")):
        run.wait_until(lambda: sizes()[-1] <= max(sizes()) / 2)
    for _ in range(2):
        run.process.send_signal(signal.SIGINT)
    run.finish()
    assert run.lost() == []
