"""Calls the user's callbacks with what happens in a run.

Each callback has a thread and a follower of its own. So one that is slow delays neither the run nor another callback,
and it still gets every point and every event. What it raises is printed, and harms nothing.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastichost.metrics import RunStatus
from elastichost.runs.events import EvaluationFinished, JournalLine
from elastichost.runs.follow import Happening, RunFollower
from elastichost.runs.learning_curve import CurvePoint

if TYPE_CHECKING:
    from elastichost.api.run import Run

__all__ = ["Callback", "CallbackThreads"]

POLL_S = 0.2
SHOWN_ERRORS = 3


class Callback:
    """Derive from it and override what you need. Methods are called from a thread, one after the other, and may take
    their time. An exception is printed with its traceback; the run and the other methods go on."""

    def on_status(self, status: RunStatus) -> None:
        """About once a second: progress, samples/s, processes. A callback that is slow sees the newest status only."""

    def on_loss(self, point: CurvePoint) -> None:
        """For every point of the learning curve, in order: `point.samples`, `point.loss`."""

    def on_evaluation(self, evaluation: EvaluationFinished) -> None:
        """After every evaluation on the test data: `evaluation.samples`, `evaluation.auc`, `evaluation.logloss`."""

    def on_event(self, line: JournalLine) -> None:
        """For every event of the run: `line.event` is typed, `line.time_utc` is its time."""

    def on_end(self, run: Run) -> None:
        """Once, when the run has ended, after all else: `run.status`, `run.metrics`."""


class CallbackThreads:
    """The threads of the callbacks of one run. from_now: for a run that is resumed."""

    def __init__(self, callbacks: Sequence[Callback], run_dir: Path, *, from_now: bool) -> None:
        self._ended = threading.Event()
        self._threads = [
            _CallbackThread(
                callback, RunFollower.from_now(run_dir) if from_now else RunFollower(run_dir), run_dir, self._ended
            )
            for callback in callbacks
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, has_run: bool, wait_s: float) -> None:
        """Lets the callbacks see the rest and returns when they have, or after `wait_s`; then says which have not.
        has_run: the run got as far as to have a directory with a result or a status."""
        for thread in self._threads:
            thread.has_run = has_run
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(wait_s)
                if thread.is_alive():
                    print(f"callback {thread.name} still works, {wait_s:.0f} s after the run", file=sys.stderr)


class _CallbackThread(threading.Thread):
    def __init__(self, callback: Callback, follower: RunFollower, run_dir: Path, ended: threading.Event) -> None:
        super().__init__(name=type(callback).__name__, daemon=True)
        self._callback, self._follower, self._run_dir, self._ended = callback, follower, run_dir, ended
        self._errors = 0
        self.has_run = False

    def run(self) -> None:
        while True:
            is_last = self._ended.wait(POLL_S)
            for happening in self._follower.poll():
                self._tell(happening)
            if is_last:
                break
        if self.has_run:
            from elastichost.api.run import Run

            self._call(self._callback.on_end, Run(self._run_dir))

    def _tell(self, happening: Happening) -> None:
        match happening:
            case CurvePoint():
                self._call(self._callback.on_loss, happening)
            case RunStatus():
                self._call(self._callback.on_status, happening)
            case JournalLine():
                self._call(self._callback.on_event, happening)
                if isinstance(happening.event, EvaluationFinished):
                    self._call(self._callback.on_evaluation, happening.event)

    def _call(self, method: Callable[[Any], None], argument: Any) -> None:
        try:
            method(argument)
        except Exception:  # noqa: BLE001 - it is the user's, who reads its traceback; the run is not to end for it
            self._errors += 1
            if self._errors <= SHOWN_ERRORS:
                last = "; further errors of it are not shown" if self._errors == SHOWN_ERRORS else ""
                print(f"{self.name}.{method.__name__} raised an error{last}:", file=sys.stderr)
                traceback.print_exc()
