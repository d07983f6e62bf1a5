"""The progress that `train` shows: how much it says in a notebook however long a run is."""

from __future__ import annotations

import io

import pytest

from elastichost.api.notebook import Display
from elastichost.api.progress import SHOWN_NOTICES, NotebookProgress, TerminalProgress, progress_of
from elastichost.errors import DataError
from elastichost.metrics import RunStatus
from elastichost.plan import ProcessId
from elastichost.runs.events import JournalLine, ProcessLost, RunFailed


class Shown(Display):
    """Keeps what a notebook would show, instead of sending it to a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[tuple[str, float | None, str]] = []

    def show(self, line: str, share: float | None = None, notices: str = "") -> None:
        self.contents.append((line, share, notices))


def status(trained: int) -> RunStatus:
    facts = {"samples_planned": 100, "samples_trained": trained, "samples_per_s": 12_345.0, "loss": 0.5, "eta_s": 3.0}
    return RunStatus(run_dir="runs/x", job="clicks", state="training", supervisor_pid=1, **facts)  # type: ignore[arg-type]


def lost(number: int) -> JournalLine:
    event = ProcessLost(ProcessId("worker", number, 1), pid=1, code=-9, state="running", reason="killed by signal 9")
    return JournalLine(time_utc="2026-01-02T03:04:05.000Z", monotonic_s=0.0, event=event, cause="")


def test_a_notebook_shows_a_bar_a_line_and_the_newest_notices() -> None:
    shown = Shown()
    progress = NotebookProgress(shown)
    progress.on_status(status(25))
    for number in range(SHOWN_NOTICES + 3):
        progress.on_event(lost(number))
    assert shown.contents[0] == ("clicks  training  25 %  12.3k samples/s  3.0s left  loss 0.5000", 0.25, "")
    line, share, notices = shown.contents[-1]
    assert (line, share) == shown.contents[0][:2]
    assert notices.splitlines()[0] == "3 more before: run.events()"
    assert len(notices.splitlines()) == SHOWN_NOTICES + 1
    assert f"worker-{SHOWN_NOTICES + 2}" in notices.splitlines()[-1]


def test_a_run_that_fails_leaves_one_line_without_what_the_error_says_too() -> None:
    shown = Shown()
    progress = NotebookProgress(shown)
    progress.on_failure(DataError("no column"))
    assert shown.contents == [], "nothing was shown yet"
    progress.on_event(lost(1))
    progress.on_failure(DataError("no column"))
    assert shown.contents[-1] == ("failed: DataError", None, "")


def test_a_terminal_shows_one_line_that_is_overwritten() -> None:
    stream = io.StringIO()
    progress = TerminalProgress(stream)
    progress.on_status(status(25))
    progress.on_event(lost(1))
    assert stream.getvalue().count("\n") == 1, "only the notice has a line of its own"
    assert "25 %" in stream.getvalue() and "worker-1" in stream.getvalue()


def test_the_error_that_train_raises_is_not_shown_before() -> None:
    failed = JournalLine("2026-01-01T00:00:02.000Z", 2.0, RunFailed("ModelError", "the model returned None"))
    stream, shown = io.StringIO(), Shown()
    TerminalProgress(stream).on_event(failed)
    NotebookProgress(shown).on_event(failed)
    assert (stream.getvalue(), shown.contents) == ("", [])


@pytest.mark.parametrize(("is_wanted", "count"), [(None, 0), (False, 0), (True, 1)])
def test_a_script_without_a_terminal_shows_progress_on_request_only(
    is_wanted: bool | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert len(progress_of(is_wanted)) == count


def test_rows_that_are_written_before_a_run_are_shown() -> None:
    shown, stream = Shown(), io.StringIO()
    for progress in (NotebookProgress(shown), TerminalProgress(stream)):
        progress.on_rows("data.train: 65,536 rows written")
        progress.on_failure(DataError("no"))
    assert [line for line, _, _ in shown.contents] == ["data.train: 65,536 rows written", "failed: DataError"]
    assert stream.getvalue().startswith("\rdata.train: 65,536 rows written\rfailed: DataError")
