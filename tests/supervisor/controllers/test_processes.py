"""What the controller of the processes does with the events of a launcher."""

from __future__ import annotations

import pytest

from elastichost.runs.events import LogNotKept
from elastichost.supervisor.core.lifecycle import State
from elastichost.supervisor.launch.events import Exited, LogNotOpened, StartFailed
from tests.supervisor.controllers.test_leases import Stage


def test_a_log_that_cannot_be_opened_is_noted_and_the_process_still_starts() -> None:
    stage = Stage()
    process = stage.add("worker", 0, State.REQUESTED)
    stage.processes.launch_event(LogNotOpened(process, "/run/logs/worker-0.1.log", "Not a directory", 20))
    assert stage.noted.of(LogNotKept) == [LogNotKept(process, "/run/logs/worker-0.1.log: Not a directory")]
    assert "starts without a log" in stage.noted.texts[0]
    record = stage.fleet.find(process)
    assert record is not None and record.state == State.REQUESTED
    assert not stage.run.deaths


@pytest.mark.parametrize("late", [Exited, StartFailed])
def test_a_process_that_ends_long_after_a_roll_back_changes_nothing(
    late: type[Exited | StartFailed],
) -> None:
    """Regression: the run ended as a bug. A process with much memory takes its time to end."""
    stage = Stage()
    process = stage.add("worker", 0, State.RUNNING)
    stage.fleet.remember(process, 1.0)
    stage.processes.launch_event(Exited(process, 100, -9) if late is Exited else StartFailed(process, "no memory"))
    record = stage.fleet.find(process)
    assert record is not None and record.state == State.EXITED
    assert not stage.run.deaths and not stage.noted.events
