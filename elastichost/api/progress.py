"""Shows a run while `train` waits for it: on a terminal a line that changes, in a notebook one output that changes,
elsewhere nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from elastichost.api.callbacks import Callback
from elastichost.api.notebook import Display, is_notebook
from elastichost.api.run import Run
from elastichost.errors import ElastichostError
from elastichost.human_readable import count_words, duration_words
from elastichost.metrics import RunStatus
from elastichost.runs.events import JournalLine, RunFailed

__all__ = ["NotebookProgress", "ShownProgress", "TerminalProgress", "line_of", "progress_of"]

BAR_CELLS = 30
SHOWN_NOTICES = 5


class ShownProgress(Callback):
    """Shows a run while it trains."""

    def on_rows(self, line: str) -> None:
        """Rows of `from_iterable` are being written, before the run: a line of progress."""

    def on_failure(self, error: ElastichostError) -> None:
        """The run has ended with this error, which the user sees beside it. All other methods have ended."""


def progress_of(is_wanted: bool | None) -> Sequence[ShownProgress]:
    """The callback that shows the run here, or none. is_wanted: None: if a person looks on."""
    if is_notebook():
        return [NotebookProgress()] if is_wanted is not False else []
    is_shown = sys.stderr.isatty() if is_wanted is None else is_wanted
    return [TerminalProgress()] if is_shown else []


class TerminalProgress(ShownProgress):
    """Writes one line of progress to stderr and overwrites it; warnings and faults get lines of their own."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._width = 0

    def on_rows(self, line: str) -> None:
        self._write(line)

    def on_status(self, status: RunStatus) -> None:
        self._write(line_of(status))

    def on_event(self, line: JournalLine) -> None:
        if is_notice(line):
            self._write(str(line), is_last=True)

    def on_end(self, run: Run) -> None:
        self._write(repr(run)[1:-1], is_last=True)

    def on_failure(self, error: ElastichostError) -> None:
        if self._width:
            self._write(f"failed: {type(error).__name__}", is_last=True)

    def _write(self, text: str, *, is_last: bool = False) -> None:
        blank = " " * max(0, self._width - len(text))
        self._stream.write(f"\r{text}{blank}" + ("\n" if is_last else ""))
        self._stream.flush()
        self._width = 0 if is_last else len(text)


class NotebookProgress(ShownProgress):
    """Updates one output of the cell: a bar with a line, and below it the newest warnings and faults. However long a
    run is, the notebook grows by this output only."""

    def __init__(self, display: Display | None = None) -> None:
        self._display = display or Display()
        self._has_begun = False
        self._line, self._share = "starting", 0.0
        self._notices: list[str] = []
        self._left_out = 0

    def on_rows(self, line: str) -> None:
        self._has_begun, self._line = True, line
        self._display.show(line)

    def on_status(self, status: RunStatus) -> None:
        self._has_begun = True
        self._line, self._share = line_of(status, has_bar=False), share_of(status)
        self._display.show(self._line, self._share, self._text())

    def on_event(self, line: JournalLine) -> None:
        if is_notice(line):
            self._has_begun = True
            self._left_out += len(self._notices) >= SHOWN_NOTICES
            self._notices = [*self._notices, str(line)][-SHOWN_NOTICES:]
            self._display.show(self._line, self._share, self._text())

    def on_end(self, run: Run) -> None:
        self._display.show(repr(run)[1:-1], None, self._text())

    def on_failure(self, error: ElastichostError) -> None:
        if self._has_begun:
            self._display.show(f"failed: {type(error).__name__}")

    def _text(self) -> str:
        more = [f"{self._left_out} more before: run.events()"] if self._left_out else []
        return "\n".join(more + self._notices)


def share_of(status: RunStatus) -> float:
    """The part of the samples that is trained, from 0 to 1."""
    return status.samples_trained / status.samples_planned if status.samples_planned else 0.0


def line_of(status: RunStatus, *, has_bar: bool = True) -> str:
    """The progress of a run in one line."""
    words = [f"{status.job}  {status.state}"]
    if status.samples_planned:
        share = share_of(status)
        full = round(BAR_CELLS * share)
        words.append((f"[{'#' * full}{'.' * (BAR_CELLS - full)}] " if has_bar else "") + f"{100 * share:.0f} %")
    if status.samples_per_s:
        words.append(f"{count_words(round(status.samples_per_s))} samples/s")
    if status.eta_s is not None:
        words.append(f"{duration_words(status.eta_s)} left")
    if status.loss is not None:
        words.append(f"loss {status.loss:.4f}")
    if status.test_auc is not None:
        words.append(f"AUC {status.test_auc:.4f}")
    words += [f"{name} {value:.4f}" for name, value in status.test_metrics.items() if value is not None]
    return "  ".join(words)


def is_notice(line: JournalLine) -> bool:
    """Whether a person who looks on is told of this event. `train` raises the error of the run."""
    return line.event.category in ("warning", "fault") and not isinstance(line.event, RunFailed)
