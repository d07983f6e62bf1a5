"""How many bytes per second the jobs of this host can read together: measured, never assumed. Pure.

Theory of operation. A job alone that waits for its input shows what one of its readers gets, its *peak*. It does not
show whether a second reader would get as much: the limit may be that of a connection, or that of a disk or a link that
all jobs share. Only several jobs that wait at the same time show that:

    total of all jobs  <  CONTENDED * (readers that wait, each at its peak  +  the bytes of all others)

Then the source is full. Only jobs count whose readers leave most of a core idle at their peaks (`MOST_BUSY`): a reader
that decodes all the time waits for cores, not for a source. Without such a window nothing limits the jobs together as
far as is known, and no job has a demand on the input. A peak that is seen later makes earlier windows evidence too, so
jobs that all began at once teach the capacity as soon as some of them have ended.

A reader that has no core asks for nothing, and the source is not slower for that. The kernel tells for how long a
reader was ready and had no core. If that is more than at its peak, the reader is expected to read less by that share,
and a window in which the source may have been without a request for long (`MOST_UNASKED`) does not show its capacity.
What remains of this can only lower a total, never raise it, so the capacity is an upper quantile of the totals
(`QUANTILE`). For the same reason every reader of a window must have read during all of it: a reading that began before
a second job did would add bytes that the first job read alone.

A source may give more later. Two totals or readings that are clearly above the capacity (`CLEARLY_MORE`) within FRESH_S
show that, and older windows are forgotten. One does not: a source that was held up may make up for it at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

__all__ = ["BLOCKED", "InputCapacity", "JobReading"]

BLOCKED = 0.3  # share of its time from which a worker counts as waiting for its input
CONTENDED = 0.8  # largest share of the expected bytes at which a source counts as full
MOST_UNASKED = 0.25  # share of its time for which a source may have been without a request: no reader had a core
QUANTILE = 0.75
LEAST_SHARE = 0.05  # least share of its time for which a job that reads has a core
MOST_BUSY = 0.5  # cores that a worker uses at its peak, above which it may be limited by computing
FRESH_S = 4.0  # a job whose newest reading is older reads no more
STEP_S = 0.5  # between two windows
BEGIN_S = 0.25  # a reading may have begun that long before another job read
CLEARLY_MORE = 1.25  # times the capacity
MOST_WINDOWS, MOST_READINGS = 32, 3
LEAST_BYTES_PER_S = 64 * 1024  # of a job: below, it reads nothing that matters


class JobReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one job has read in the `seconds` before at_s. twin: jobs of the same twin have readers of the same speed.
    wait_share: share of the time in which its workers waited for input. cpu_s_per_byte: CPU seconds of its workers for
    a byte, the same beside any other jobs. core_wait_share: share of the time in which its workers had no core."""

    job: str
    twin: str
    workers: int
    bytes_per_s: float
    wait_share: float
    cpu_s_per_byte: float
    core_wait_share: float
    seconds: float
    at_s: float

    @property
    def of_reader(self) -> float:
        """Bytes/s of one reader."""
        return self.bytes_per_s / max(1, self.workers)

    def covers(self, moment_s: float) -> bool:
        return self.at_s - self.seconds < moment_s <= self.at_s


@dataclass(slots=True)
class InputCapacity:
    """The state that is kept. peaks: twin -> the reading in which a reader got most. newest: job -> its newest
    readings. began_s: job -> when its first reading began. windows: the readings of all jobs that cover the same
    moment, the newest last; window_s: that moment. Only moments at which several readers wait are kept, because others
    show nothing: so what is known is not forgotten while one job at a time reads."""

    peaks: dict[str, JobReading] = field(default_factory=dict)
    newest: dict[str, deque[JobReading]] = field(default_factory=dict)
    began_s: dict[str, float] = field(default_factory=dict)
    windows: deque[tuple[JobReading, ...]] = field(default_factory=lambda: deque(maxlen=MOST_WINDOWS))
    window_s: float = -math.inf
    more_s: float = -math.inf  # when the source gave clearly more than its capacity, and has not given less since

    def take(self, reading: JobReading, others: Collection[str] = ()) -> None:
        """Adds a reading, and a window of the newest moment that the readings of all jobs cover. Jobs are measured at
        different times, so their newest readings may belong to different sets of jobs. others: the other jobs that may
        read now; while one of them has no reading yet, the bytes of a window would be incomplete."""
        if reading.bytes_per_s >= LEAST_BYTES_PER_S:
            peak = self.peaks.setdefault(reading.twin, reading)
            if reading.of_reader > peak.of_reader:
                self.peaks[reading.twin] = reading
        self.newest = {job: kept for job, kept in self.newest.items() if reading.at_s - kept[-1].at_s <= FRESH_S}
        self.began_s = {job: began_s for job, began_s in self.began_s.items() if job in self.newest}
        self.began_s.setdefault(reading.job, reading.at_s - reading.seconds)
        self.newest.setdefault(reading.job, deque(maxlen=MOST_READINGS)).append(reading)
        self._forget_if_below(reading.bytes_per_s, reading.at_s, is_all=len(self.newest) == 1)
        if any(job not in self.newest for job in others):
            return
        moment_s = min(kept[-1].at_s for kept in self.newest.values())
        covering = ([one for one in kept if one.covers(moment_s)][-1:] for kept in self.newest.values())
        window = tuple(one for found in covering for one in found)
        if sum(one.workers for one in window if self._is_blocked(one)) < 2 or not self._is_of_one_set(window):
            return
        if self.windows and moment_s < self.window_s + STEP_S:  # none: they were forgotten since
            self.windows.pop()  # now one more job may be known at the same moment
        else:
            self.window_s = moment_s
        self._forget_if_below(sum(one.bytes_per_s for one in window), moment_s, is_all=True)
        self.windows.append(window)

    def _forget_if_below(self, bytes_per_s: float, at_s: float, *, is_all: bool) -> None:
        """Forgets the windows if the source has given clearly more than they show, twice. is_all: no other job read."""
        capacity, since_s = self.bytes_per_s(), at_s - self.more_s
        if capacity is None or bytes_per_s <= CLEARLY_MORE * capacity:
            self.more_s = -math.inf if is_all else self.more_s
        elif since_s > FRESH_S:
            self.more_s = at_s
        elif since_s >= STEP_S:
            self.windows.clear()
            self.more_s = -math.inf

    def is_contested(self, job: str, now_s: float, others: Collection[str] = ()) -> bool:
        """Whether another job waits for its input now, or may do so, so that the two may slow each other. others: the
        other jobs that may read now; one that has just started to train has no reading yet."""
        fresh = {kept[-1].job: kept[-1] for kept in self.newest.values() if now_s - kept[-1].at_s <= FRESH_S}
        is_unknown = any(other not in fresh for other in others)
        return is_unknown or any(self._is_blocked(one) for other, one in fresh.items() if other != job)

    def bytes_per_s(self) -> float | None:
        """The capacity of the source that the jobs share; None: no window shows that they limit each other."""
        full = sorted(total for window in self.windows if (total := self._full(window)) is not None)
        return full[math.ceil(QUANTILE * len(full)) - 1] if full else None

    def _is_of_one_set(self, window: tuple[JobReading, ...]) -> bool:
        """Whether all its jobs read during all of its readings."""
        last_began_s = max(self.began_s[one.job] for one in window)
        return all(one.at_s - one.seconds >= last_began_s - BEGIN_S for one in window)

    def _is_blocked(self, one: JobReading) -> bool:
        """Whether the job waits for bytes, and not for a core."""
        is_waiting = one.wait_share >= BLOCKED and one.bytes_per_s >= LEAST_BYTES_PER_S
        return is_waiting and one.cpu_s_per_byte * self.peaks[one.twin].of_reader < MOST_BUSY

    def _full(self, window: tuple[JobReading, ...]) -> float | None:
        """The bytes/s of a window in which the source was full; None: it was not, or that is not known."""
        blocked = [one for one in window if self._is_blocked(one)]
        total = sum(one.bytes_per_s for one in window)
        others = sum(one.bytes_per_s for one in window if one not in blocked)
        if math.prod(one.core_wait_share**one.workers for one in blocked) > MOST_UNASKED:
            return None
        return total if total < CONTENDED * (others + sum(map(self._expected, blocked))) else None

    def _expected(self, one: JobReading) -> float:
        """The bytes/s of a job whose readers read as at their peak, with the cores that they have now."""
        peak = self.peaks[one.twin]
        cores = min(1.0, (1 - one.core_wait_share) / max(1 - peak.core_wait_share, LEAST_SHARE))
        return one.workers * peak.of_reader * cores
