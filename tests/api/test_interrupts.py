"""An interrupt that comes while a run begins."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import elastichost as eh
from elastichost.api.interrupts import run_to_end
from elastichost.api.launch import StartMsg, SupervisorProcess
from elastichost.errors import JobFailedError
from elastichost.runs.events import ProcessReady
from tests.system.test_run import folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

__all__ = ["folder"]


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Tests that were started in the background of a shell ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_a_run_begins_ends_the_run(folder: Path) -> None:
    """The run has a process already, and nobody has its handle yet."""
    data = eh.Data(format="synthetic", synthetic={"rows": 10_000, "test_rows": 1000, "tables": 2, "table_rows": 100})
    begun: list[eh.RunHandle] = []
    before = set(psutil.Process().children())  # of other tests

    def begin() -> eh.RunHandle:
        begun.append(eh.start(model="elastichost.models:dlrm", data=data, dir=folder / "run"))
        os.kill(os.getpid(), signal.SIGINT)
        return begun[0]

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="the run is stopped"):
        run_to_end(begin, [])
    assert not begun[0].is_running
    assert set(psutil.Process().children()) <= before
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_interrupt_that_reaches_the_new_process_too_is_thrown_away(folder: Path) -> None:
    """An interrupt of a terminal or of a notebook goes to a group of processes, to which it belongs at first."""
    data = eh.Data(format="synthetic", synthetic={"rows": 10_000, "test_rows": 1000, "tables": 2, "table_rows": 100})
    before = set(psutil.Process().children())
    handle = eh.start(model="elastichost.models:dlrm", data=data, dir=folder / "run")
    (supervisor,) = set(psutil.Process().children()) - before
    supervisor.send_signal(signal.SIGINT)  # it is not further than its imports
    assert handle.wait().status == "done"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_by_hand_still_stops_a_run(folder: Path) -> None:
    data = eh.Data(format="synthetic", synthetic={"rows": 500_000, "test_rows": 1000, "tables": 2, "table_rows": 100})
    before = set(psutil.Process().children())
    handle = eh.start(model="elastichost.models:dlrm", data=data, dir=folder / "run")
    (supervisor,) = set(psutil.Process().children()) - before
    next(
        line for line in handle.events() if isinstance(line.event, ProcessReady) and line.event.process.role == "worker"
    )
    supervisor.send_signal(signal.SIGINT)
    assert handle.wait().status == "stopped"


def test_a_supervisor_that_dies_at_once_tells_what_it_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "python"
    program.write_text("#!/bin/sh\necho no libraries\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    process = SupervisorProcess(StartMsg("", str(folder / "run")))
    with pytest.raises(JobFailedError, match="exit code 7:\nno libraries"):
        process.end()
    long = SupervisorProcess(StartMsg("x" * 10_000_000, str(folder / "run")))  # more than a socket takes
    with pytest.raises(JobFailedError, match="no libraries"):
        long.end()
