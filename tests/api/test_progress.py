"""What is shown while `train` waits for a run."""

from __future__ import annotations

import io

from elastichost.api.progress import Progress
from elastichost.plan import ProcessId
from elastichost.runs.events import JournalLine, ProcessLost, RunFailed


def shown(line: JournalLine) -> str:
    stream = io.StringIO()
    Progress(stream).on_event(line)
    return stream.getvalue()


def test_faults_get_a_line_but_not_the_error_that_train_raises() -> None:
    lost = ProcessLost(ProcessId("worker", 0, 1), 7, -9, "running", "signal 9 (SIGKILL)")
    assert "SIGKILL" in shown(JournalLine("2026-01-01T00:00:01.000Z", 1.0, lost))
    failed = RunFailed("ModelError", "the model returned None")
    assert shown(JournalLine("2026-01-01T00:00:02.000Z", 2.0, failed)) == ""
