"""The sessions of a run, one for each supervisor of it, and their times on one axis. Pure.

Each session has its own monotonic clock, because the machine may have been rebooted between two sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from elastichost.reporting.run.facts import SupervisorSession
from elastichost.runs.events import JournalLine, RunStarted

__all__ = ["Axis", "Chapter", "axis_of", "chapters_of"]

WARNED_BEFORE_S = 5.0  # a supervisor may write warnings up to this long before its `run_started`
LATE_S = 30.0  # a record may be up to this much later than the last event of its session
ASIDE_S = 1.0  # the times of records of one turn may be out of order by up to this much


class Chapter(msgspec.Struct, frozen=True):
    """The journal lines of one session."""

    lines: tuple[JournalLine, ...]

    @property
    def began_s(self) -> float:
        return self.lines[0].monotonic_s

    @property
    def duration_s(self) -> float:
        return max(0.0, max(line.monotonic_s for line in self.lines) - self.began_s)


def chapters_of(lines: Iterable[JournalLine]) -> tuple[Chapter, ...]:
    """Splits the journal into sessions: one for each `run_started`, with the warnings just before it. Lines before the
    first `run_started` belong to the first session."""
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
    """Removes and returns the warnings at the end of the chapter that belong to the next session."""
    taken: list[JournalLine] = []
    while chapter and chapter[-1].event.category == "warning":
        if not 0.0 <= started.monotonic_s - chapter[-1].monotonic_s < WARNED_BEFORE_S:
            break
        taken.insert(0, chapter.pop())
    return taken


class Axis:
    """Maps times of sessions to the axis of running time. measured: numbers of the sessions that have measurements, in
    order."""

    def __init__(self, sessions: tuple[SupervisorSession, ...], measured: tuple[int, ...] = ()) -> None:
        self.sessions, self.measured = sessions, measured
        self._present, self._last_s = 0, float("-inf")

    @property
    def total_s(self) -> float:
        return self.sessions[-1].at_s + self.sessions[-1].duration_s if self.sessions else 0.0

    def at_s(self, session: int, monotonic_s: float) -> float:
        """The running time of a moment of a session, in seconds. Moments outside the session map to its edge."""
        one = self.sessions[session]
        if one.began_s is None:
            return one.at_s
        return one.at_s + min(max(0.0, monotonic_s - one.began_s), one.duration_s)

    def next_at_s(self, monotonic_s: float) -> float:
        """The running time of a moment without a recorded session. Call it in the order in which moments were
        written: a moment before the last one, or well after the end of the present session, is of the next session."""
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
    """Lays sessions end to end. measured_s: the measured duration of each session. If there are fewer durations than
    chapters, the shortest chapters are taken to have ended before anything was measured. If there are more, the journal
    has lost sessions, and sessions without journal lines are added."""
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
