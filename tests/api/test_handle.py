"""The status of a run that was started from Python: never that of a supervisor before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import elastichost as eh
from elastichost.api import handle
from elastichost.api.launch import ErrorFacts, StartMsg, SupervisorEndMsg
from elastichost.errors import DataError
from elastichost.metrics import RunStatus
from elastichost.run_files import RESOLVED_JOB_FILE, STATUS_FILE

NEVER_S = 0.3


class StandIn:
    """Stands for the process of a supervisor: it ends when the test says so."""

    def __init__(self, start: StartMsg) -> None:
        self.has_to_end, self.told = threading.Event(), SupervisorEndMsg()
        made.append(self)

    def end(self) -> SupervisorEndMsg:
        self.has_to_end.wait()
        return self.told

    def finish(self, told: SupervisorEndMsg) -> None:
        self.told = told
        self.has_to_end.set()


made: list[StandIn] = []


@pytest.fixture(autouse=True)
def supervisors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made.clear()
    monkeypatch.setattr(handle, "SupervisorProcess", StandIn)
    yield
    for one in made:
        one.has_to_end.set()


def write(run: Path, state: str, pid: int, commands: str = "") -> RunStatus:
    status = RunStatus(run_dir=str(run), job="shop", state=state, supervisor_pid=pid, commands=commands)
    (run / STATUS_FILE).write_bytes(msgspec.json.encode(status))
    return status


def resumed(run: Path, state: str) -> tuple[eh.RunHandle, StandIn]:
    """The handle of a run that was in this state before, and its supervisor, which has written nothing yet."""
    (run / RESOLVED_JOB_FILE).write_text('[model]\nbuild = "a:b"\n[data]\nformat = "synthetic"\n')
    write(run, state, 7, "ipc:///dead")
    return eh.RunHandle(StartMsg("", str(run), is_resumed=True), ()), made[0]


def later(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Calls a function in a thread."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    return thread, found


@pytest.mark.parametrize("state", ["stopped", "failed", "training"])
def test_a_resumed_run_does_not_show_the_status_of_an_earlier_supervisor(tmp_path: Path, state: str) -> None:
    run, supervisor = resumed(tmp_path, state)
    assert "starting" in repr(run)
    thread, found = later(run.status)
    thread.join(NEVER_S)
    assert not found, "it waits for the first status, as for a new run"
    own = write(tmp_path, "starting", 7)  # in a container the pid may be the same
    thread.join()
    assert found == [own]
    assert run.status() == own
    supervisor.finish(SupervisorEndMsg())


def test_a_resumed_run_is_not_scaled_at_the_socket_of_a_killed_supervisor(tmp_path: Path) -> None:
    run, supervisor = resumed(tmp_path, "training")
    thread, found = later(run._address)
    thread.join(NEVER_S)
    assert not found
    write(tmp_path, "starting", 8, "ipc:///alive")
    thread.join()
    assert found == ["ipc:///alive"]
    supervisor.finish(SupervisorEndMsg())


def test_the_next_status_of_a_resumed_run_is_one_of_its_own(tmp_path: Path) -> None:
    run, supervisor = resumed(tmp_path, "training")
    thread, found = later(run._wait_for_next_status)
    time.sleep(0.1)
    write(tmp_path, "starting", 8)
    thread.join(NEVER_S)
    assert not found, "it was the first one, and not the next"
    write(tmp_path, "training", 8)
    thread.join()
    assert found == [None]
    supervisor.finish(SupervisorEndMsg())


def test_a_resume_that_fails_before_it_begins_raises_its_error(tmp_path: Path) -> None:
    run, supervisor = resumed(tmp_path, "stopped")
    supervisor.finish(SupervisorEndMsg(error=ErrorFacts.of(DataError("rows are bad"))))
    with pytest.raises(DataError, match="rows are bad"):
        run.status()


def test_a_run_that_was_done_before_it_was_resumed_shows_how_it_ended(tmp_path: Path) -> None:
    run, supervisor = resumed(tmp_path, "done")
    supervisor.finish(SupervisorEndMsg())
    assert run.status().state == "done"


def test_a_new_run_shows_its_first_status(tmp_path: Path) -> None:
    run = eh.RunHandle(StartMsg("", str(tmp_path)), ())
    thread, found = later(run.status)
    time.sleep(0.1)
    own = write(tmp_path, "starting", 9)
    thread.join()
    assert found == [own]
