"""What went wrong with one job: stragglers, hot PS, memory that ran short; since when, and what became of it. Pure.

Nothing here changes how fast a job is: it is a book, by which policies are judged.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

__all__ = ["HOT", "ROOM_BYTES", "Episode", "EpisodeEnd", "EpisodeLog", "MemoryRaise"]

# cured: replaced, or its buckets were moved; passed: by itself; left: the worker went, or the job was over
EpisodeEnd = Literal["cured", "passed", "left"]
HOT = -1  # stands for the slot of a worker
ROOM_BYTES = 1e6  # less is no raise


class Episode(msgspec.Struct, frozen=True, gc=False):
    """size: share of the rows' work that a hot PS had beyond its usual part; 0 for a straggler. peers: processes of its
    role, itself included; the fewest that the job had meanwhile."""

    kind: Literal["straggler", "hot"]
    began_s: float
    ended_s: float
    end: EpisodeEnd
    size: float
    peers: int

    @property
    def lasted_s(self) -> float:
        return self.ended_s - self.began_s


class MemoryRaise(msgspec.Struct, frozen=True, gc=False):
    """A running job was granted more room for its rows. needed_s: when it would have been killed without; inf: never.
    move_s: what it takes to move all its rows to another host."""

    at_s: float
    needed_s: float
    move_s: float


class _Open(msgspec.Struct):
    began_s: float
    size: float
    peers: int


class EpisodeLog:
    """Of one job. next_samples: when so many are trained, the first of the raises turns out to have been needed."""

    def __init__(self) -> None:
        self.over: list[Episode] = []
        self.raises: list[MemoryRaise] = []
        self.next_samples = math.inf
        self._open: dict[int, _Open] = {}
        self._waiting: list[tuple[float, float, float]] = []  # samples, at_s, move_s

    # --- stragglers and hot PS ----------------------------------------------------------------------------------------

    def begin(self, slot: int, now_s: float, peers: int, size: float = 0.0) -> None:
        """slot: of a worker, or HOT. One that goes on already goes on."""
        self._open.setdefault(slot, _Open(now_s, size, peers))

    def resized(self, workers: int, servers: int) -> None:
        """The job has so many now."""
        for slot, one in self._open.items():
            one.peers = min(one.peers, servers if slot == HOT else workers)

    def end(self, slot: int, now_s: float, how: EpisodeEnd) -> None:
        """Nothing happens when it is not under way."""
        one = self._open.pop(slot, None)
        if one is not None:
            kind: Literal["straggler", "hot"] = "hot" if slot == HOT else "straggler"
            self.over.append(Episode(kind, one.began_s, now_s, how, one.size, one.peers))

    # --- memory -------------------------------------------------------------------------------------------------------

    def more_room(self, at_s: float, samples: float, move_s: float) -> None:
        """samples: with which the room that it had would have been used up; inf: never."""
        if math.isinf(samples):
            self.raises.append(MemoryRaise(at_s, math.inf, move_s))
            return
        self._waiting.append((samples, at_s, move_s))
        self.next_samples = min(self.next_samples, samples)

    def trained(self, before: float, after: float, since_s: float, rate: float) -> None:
        """From `before` to `after` at one rate since then."""
        left = []
        for samples, at_s, move_s in self._waiting:
            if samples <= after:
                after_s = (samples - before) / rate if samples > before else 0.0
                self.raises.append(MemoryRaise(at_s, since_s + after_s, move_s))
            else:
                left.append((samples, at_s, move_s))
        self._waiting = left
        self.next_samples = min((one[0] for one in left), default=math.inf)

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self, now_s: float) -> None:
        """The job is over. What would have been needed later was not judged, and is left out."""
        for slot in tuple(self._open):
            self.end(slot, now_s, "left")
        self._waiting, self.next_samples = [], math.inf
