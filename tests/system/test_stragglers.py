"""A worker that is slowed down from outside: it gets less to do, and is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = [pytest.mark.system, pytest.mark.matrix]

STOPPED_S, RUNNING_S = 0.18, 0.02


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Stops the process for nine tenths of the time; lets it run at the end, if it is still there."""
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
    rows = 60_000 if mode == "sync" else 180_000
    run = Supervised(folder, template=template, build=f"{folder}/slow.py:build", rows=rows, restarts=0)
    run.wait_trained(1)
    run.wait_until(lambda: len(run.events("lease")) >= 6)
    with slowed(run.pid("worker-1")):
        run.wait_until(lambda: any("replaced: it trains" in event.text for event in run.events("decision")))
    run.wait_ready("worker-1.2")
    code, errors = run.finish()
    assert code == 0, errors
    result = run.result()
    assert result["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    assert result["processes"]["restarts"] == 1
    (lost,) = run.events("process_lost")
    assert lost.text.startswith("worker-1.1 was lost while killing: killed: replaced: it trains")
    if mode == "async":
        at_s = next(number for number, event in enumerate(run.events("lease")) if event.data["life"] == 2)
        before = [event for event in run.events("lease")[:at_s] if event.process == "worker-1"]
        usual = max(int(event.data["stop"]) - int(event.data["start"]) for event in before)
        last = int(before[-1].data["stop"]) - int(before[-1].data["start"])
        assert last <= usual / 2, "its leases are smaller"
