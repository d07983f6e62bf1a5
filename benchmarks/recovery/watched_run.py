"""A run of elastichost into which faults are injected while its progress is recorded every few milliseconds."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from benchmarks.harness.workshop import Workshop
from benchmarks.recovery.course import Course, full_rate_s, lost_s, rate_between
from elastichost.chaos.tails import JournalTail
from elastichost.chaos.target import RunUnderChaos
from elastichost.plan import ProcessId
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.events import CheckpointWritten, JournalLine, ProcessEvent

__all__ = ["Hurt", "RunWatched", "watched"]

WATCHED_S = 3.0  # lost training is counted for this time after the fault
CALM_S = 1.5  # the undisturbed rate is measured for this time before the fault, and again after the watched time
HANG_TIMEOUT_S = 3.0
LIMIT_S = 180.0
SETTINGS = {
    "train.epochs": 1_000_000,
    "evaluate.every_samples": 0,
    "resources.restarts": 1_000_000,
    "supervision.hang_timeout_s": HANG_TIMEOUT_S,
}
Found = TypeVar("Found")


class Hurt(msgspec.Struct, frozen=True):
    """The times after one fault, in seconds. noticed: the supervisor's journal records it. back: the successor works: a
    worker has committed its first batch, a PS serves. full: training is at its full rate again; None if not within the
    watched time. lost: missing seconds of undisturbed training."""

    noticed_s: float
    back_s: float
    full_s: float | None
    lost_s: float


class RunWatched:
    """One run; `look` reads its new journal lines and records its progress."""

    def __init__(self, run: RunUnderChaos) -> None:
        self.run = run
        self.course = Course()
        self._journal = JournalTail(run.run_dir / JOURNAL_FILE)
        self.lines: list[JournalLine] = []

    def look(self) -> None:
        self.run.look()
        self.lines += self._journal.poll()
        self.course.note(self.run.now_s(), self.run.applied.samples)
        if self.run.exit_code is not None:
            raise RuntimeError(f"the run ended with exit code {self.run.exit_code}:\n{self.run.log}")
        self.run.wait_a_little()

    def wait(self, find: Callable[[], Found | None]) -> Found:
        """Looks until `find` returns a value, and returns that. Raises RuntimeError if the run ends, or after
        LIMIT_S."""
        deadline_s = self.run.now_s() + LIMIT_S
        while (found := find()) is None:
            self.look()
            if self.run.now_s() > deadline_s:
                raise RuntimeError(f"no progress for {LIMIT_S:g} s:\n{self.run.log}")
        return found

    def watch(self, seconds: float) -> None:
        until_s = self.run.now_s() + seconds
        self.wait(lambda: True if self.run.now_s() >= until_s else None)

    def wait_whole(self) -> None:
        """Waits until every process of the plan has been working for a while."""
        self.wait(lambda: True if self.run.scene.is_whole and self.run.applied.first_s else None)
        self.watch(CALM_S + 0.1)

    def kill(self, role: Literal["worker", "server"], number: int) -> Hurt:
        """Kills (SIGKILL) the `number`th process of a role, counted in turn, and measures the recovery."""
        self.wait_whole()
        run = self.run
        incarnations = run.scene.working(role)
        incarnation = incarnations[number % len(incarnations)]
        struck_s = self.course.moments_s[-1]
        self.lines.clear()
        run.hit(incarnation.pid, signal.SIGKILL)
        noticed_s = self.wait(lambda: self._event_s("process_lost", incarnation.process))
        later = (incarnation.process.index, incarnation.process.incarnation + 1)
        if role == "worker":
            back_s = self.wait(lambda: run.applied.first_s.get(later))
        else:
            back_s = self.wait(lambda: self._event_s("process_ready", ProcessId("server", *later)))
        until_s = struck_s + WATCHED_S
        self.wait(lambda: True if self.course.moments_s[-1] > until_s + CALM_S else None)
        before, after = ((start_s, start_s + CALM_S) for start_s in (struck_s - CALM_S, until_s))
        rate = (rate_between(self.course, *before) + rate_between(self.course, *after)) / 2
        full_s = full_rate_s(self.course, struck_s, rate, until_s)
        return Hurt(noticed_s - struck_s, back_s - struck_s, full_s, lost_s(self.course, struck_s, until_s, rate))

    def stop(self, number: int) -> float:
        """Stops a worker (SIGSTOP) and never resumes it; returns the seconds until the supervisor detects the hang."""
        self.wait_whole()
        incarnations = self.run.scene.working("worker")
        incarnation = incarnations[number % len(incarnations)]
        self.lines.clear()
        struck_s = self.run.now_s()
        self.run.stop(incarnation.pid, LIMIT_S)
        return self.wait(lambda: self._event_s("process_killing", incarnation.process)) - struck_s

    def _event_s(self, kind: str, process: ProcessId) -> float | None:
        about = (line for line in self.lines if isinstance(line.event, ProcessEvent) and line.event.process == process)
        return next((line.monotonic_s for line in about if line.kind == kind), None)

    def next_checkpoint(self) -> CheckpointWritten:
        self.lines.clear()
        return self.wait(lambda: next((o.event for o in self.lines if isinstance(o.event, CheckpointWritten)), None))


@contextlib.contextmanager
def watched(job: Path, settings: Sequence[str], workshop: Workshop, name: str) -> Iterator[RunWatched]:
    """A run in the workshop; it is killed when the context is left."""
    own = [f"{key}={value}" for key, value in SETTINGS.items()]
    with RunUnderChaos(job, [*own, *settings], workshop.disk / name, HANG_TIMEOUT_S, workshop.environment()) as run:
        yield RunWatched(run)
