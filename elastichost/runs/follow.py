"""What happens in a run, once and in order: points of the learning curve, events, and the status of each second.

A follower reads the files of the run and remembers how far it has read. So it may be slow, or begin late: it misses no
point and no event. Only of the status it sees the newest alone. Many followers cost the run nothing.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, RunStatus, read_status
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.events import JournalLine
from elastichost.runs.learning_curve import CurvePoint, read_curve
from elastichost.runs.tail import Tail

__all__ = ["Happening", "Position", "RunFollower"]

Happening = CurvePoint | JournalLine | RunStatus


class Position(msgspec.Struct, frozen=True):
    """How far a follower has read. journal_bytes: of journal.jsonl. point: the id of the last point."""

    journal_bytes: int = 0
    point: int = 0


class RunFollower:
    """Follows one run from a position."""

    def __init__(self, run_dir: Path, position: Position = Position()) -> None:  # noqa: B008 - it is frozen
        self._run_dir = run_dir
        self._journal = Tail(run_dir / JOURNAL_FILE, position.journal_bytes)
        self._decoder = msgspec.json.Decoder(JournalLine)
        self._last_point = position.point
        self._status: RunStatus | None = None

    @classmethod
    def from_now(cls, run_dir: Path) -> RunFollower:
        """A follower that leaves out what has happened, for a run that is resumed."""
        before = cls(run_dir)
        before.poll()
        return before

    @property
    def position(self) -> Position:
        """Up to here, everything was given."""
        return Position(self._journal.offset, self._last_point)

    def poll(self) -> list[Happening]:
        """What is new since the last call."""
        found: list[Happening] = [*self._events()]
        points = read_curve(self._run_dir, self._last_point)
        self._last_point = points[-1].id if points else self._last_point
        found += points
        if (status := self._newest_status()) is not None:
            found.append(status)
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the status that was given last is that of a run that has ended."""
        return self._status is not None and self._status.state in FINISHED_STATES

    def _events(self) -> list[JournalLine]:
        try:
            return [self._decoder.decode(line) for line in self._journal.new_lines()]
        except FileNotFoundError:  # the supervisor has not begun it yet
            return []

    def _newest_status(self) -> RunStatus | None:
        try:
            status = read_status(self._run_dir)
        except PreflightError:
            return None
        if status == self._status:
            return None
        self._status = status
        return status
