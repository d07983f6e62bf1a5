"""Shows a run while `train` waits for it: on a terminal and in a notebook a line that changes, elsewhere nothing."""

from __future__ import annotations

import sys
from typing import Any

from elastichost.api.callbacks import Callback
from elastichost.api.run import Run
from elastichost.human_readable import count_words, duration_words
from elastichost.metrics import RunStatus
from elastichost.runs.events import JournalLine, RunFailed
from elastichost.runs.events.text import text_of

__all__ = ["ProgressDisplay", "is_interactive", "line_of"]

BAR_CELLS = 30


class ProgressDisplay(Callback):
    """Writes one line of progress to stderr and overwrites it; warnings and faults get lines of their own."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._width = 0

    def on_status(self, status: RunStatus) -> None:
        self._write(line_of(status))

    def on_event(self, line: JournalLine) -> None:
        if isinstance(line.event, RunFailed):
            return  # `train` raises the error of the run
        if line.event.category in ("warning", "fault"):
            subject = f"{line.event.subject}: " if line.event.subject else ""
            self._write(f"{line.time_utc[11:19]} {subject}{text_of(line.event)}", is_last=True)

    def on_end(self, run: Run) -> None:
        self._write(repr(run)[1:-1], is_last=True)

    def _write(self, text: str, *, is_last: bool = False) -> None:
        blank = " " * max(0, self._width - len(text))
        self._stream.write(f"\r{text}{blank}" + ("\n" if is_last else ""))
        self._stream.flush()
        self._width = 0 if is_last else len(text)


def line_of(status: RunStatus) -> str:
    """The progress of a run in one line."""
    words = [f"{status.job}  {status.state}"]
    if status.samples_planned:
        share = status.samples_trained / status.samples_planned
        full = round(BAR_CELLS * share)
        words.append(f"[{'#' * full}{'.' * (BAR_CELLS - full)}] {100 * share:.0f} %")
    if status.samples_per_s:
        words.append(f"{count_words(round(status.samples_per_s))} samples/s")
    if status.eta_s is not None:
        words.append(f"{duration_words(status.eta_s)} left")
    if status.loss is not None:
        words.append(f"loss {status.loss:.4f}")
    if status.test_auc is not None:
        words.append(f"AUC {status.test_auc:.4f}")
    return "  ".join(words)


def is_interactive() -> bool:
    """Whether a person looks on: stderr is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
