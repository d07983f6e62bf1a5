"""The sessions of a run, one for each supervisor that worked on it, and their times on one axis. Pure.

Each session has a clock of its own: a machine may have been started anew in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from elastichost.reporting.run.facts import SupervisorSession
from elastichost.runs.events import JournalLine, RunStarted

__all__ = ["Axis", "Chapter", "axis_of", "chapters_of"]

WARNED_BEFORE_S = 5.0  # a supervisor warns before it says that it has started
LATE_S = 30.0  # a record may come so long after the session's last event
ASIDE_S = 1.0  # records of one turn may be written in another order than their times


class Chapter(msgspec.Struct, frozen=True):
    """The journal of one session."""

    lines: tuple[JournalLine, ...]

    @property
    def began_s(self) -> float:
        return self.lines[0].monotonic_s

    @property
    def duration_s(self) -> float:
        return max(0.0, max(line.monotonic_s for line in self.lines) - self.began_s)


def chapters_of(lines: Iterable[JournalLine]) -> tuple[Chapter, ...]:
    """One for each `run_started`, with the warnings just before it; lines before the first are of the first."""
    chapters: list[list[JournalLine]] = []
    for line in lines:
        if isinstance(line.event, RunStarted) and chapters and _has_started(chapters[-1]):
            earlier = _taken_back(chapters[-1], line)
            chapters.append([*earlier, line])
        elif chapters:
            chapters[-1].append(line)
        else:
            chapters.append([line])
    return tuple(Chapter(tuple(chapter)) for chapter in chapters if chapter)


def _has_started(chapter: Sequence[JournalLine]) -> bool:
    return any(isinstance(line.event, RunStarted) for line in chapter)


def _taken_back(chapter: list[JournalLine], started: JournalLine) -> list[JournalLine]:
    """Removes the warnings at the end that are the next session's."""
    taken: list[JournalLine] = []
    while chapter and chapter[-1].event.category == "warning":
        if not 0.0 <= started.monotonic_s - chapter[-1].monotonic_s < WARNED_BEFORE_S:
            break
        taken.insert(0, chapter.pop())
    return taken


class Axis:
    """Places times of sessions on the axis of running time. measured: the sessions that were measured, in order."""

    def __init__(self, sessions: tuple[SupervisorSession, ...], measured: tuple[int, ...] = ()) -> None:
        self.sessions, self.measured = sessions, measured
        self._present, self._last_s = 0, float("-inf")

    @property
    def total_s(self) -> float:
        return self.sessions[-1].at_s + self.sessions[-1].duration_s if self.sessions else 0.0

    def at_s(self, session: int, monotonic_s: float) -> float:
        """Where a moment of a session is; moments outside of it are at its edge."""
        one = self.sessions[session]
        if one.began_s is None:
            return one.at_s
        return one.at_s + min(max(0.0, monotonic_s - one.began_s), one.duration_s)

    def next_at_s(self, monotonic_s: float) -> float:
        """For moments in the order in which they were written, of whatever session: one that lies before the last one,
        or well after the end of the present session, is of the next."""
        while self._present + 1 < len(self.sessions) and self._is_later(monotonic_s):
            self._present += 1
            self._last_s = float("-inf")
        self._last_s = monotonic_s
        return self.at_s(self._present, monotonic_s) if self.sessions else 0.0

    def _is_later(self, monotonic_s: float) -> bool:
        began_s = self.sessions[self._present].began_s
        if monotonic_s < self._last_s - ASIDE_S or began_s is None:
            return True
        following = self.sessions[self._present + 1].began_s
        end_s = began_s + self.sessions[self._present].duration_s
        if following is not None and following >= end_s:
            return monotonic_s >= following
        return monotonic_s > end_s + LATE_S


def axis_of(chapters: Sequence[Chapter], measured_s: Sequence[float]) -> Axis:
    """measured_s: how long each session was measured. Where there are fewer of these than chapters the shortest
    chapters ended before anything was measured; where there are more the journal tells less than was measured."""
    missing = len(chapters) - len(measured_s)
    unmeasured = sorted(range(len(chapters)), key=lambda number: chapters[number].duration_s)[: max(0, missing)]
    left = list(measured_s)
    sessions: list[SupervisorSession] = []
    measured: list[int] = []
    at_s = 0.0
    for number, chapter in enumerate(chapters):
        duration_s = chapter.duration_s
        if number not in unmeasured and left:
            duration_s = max(duration_s, left.pop(0))
            measured.append(number)
        sessions.append(SupervisorSession(chapter.lines[0].time_utc, chapter.began_s, at_s, duration_s))
        at_s += duration_s
    for duration_s in left:
        measured.append(len(sessions))
        sessions.append(SupervisorSession("", None, at_s, duration_s))
        at_s += duration_s
    return Axis(tuple(sessions), tuple(measured))
