"""Records the incidents of one job: stragglers, hot PS and memory shortages, with their duration and end. Pure.

The records do not change the speed of a job; they serve to judge policies.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

__all__ = ["HOT", "ROOM_BYTES", "Episode", "EpisodeEnd", "EpisodeLog", "MemoryRaise"]

# cured: the worker was replaced or the buckets were moved; passed: it ended without an action; left: the worker or the
# job ended
EpisodeEnd = Literal["cured", "passed", "left"]
HOT = -1  # used instead of a worker slot
ROOM_BYTES = 1e6  # a smaller increase of memory is not recorded


class Episode(msgspec.Struct, frozen=True, gc=False):
    """A straggler or a hot PS. size: share of the work on rows that a hot PS had beyond its usual share; 0 for a
    straggler. peers: the least number of processes of its role, itself included, during the episode."""

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
    """A running job got more memory for its rows. needed_s: time at which the job would have been killed without it;
    inf: never. move_s: seconds that moving all its rows to another host takes."""

    at_s: float
    needed_s: float
    move_s: float


class _Open(msgspec.Struct):
    began_s: float
    size: float
    peers: int


class EpisodeLog:
    """The log of one job. next_samples: number of trained samples at which the first unjudged raise turns out to have
    been needed."""

    def __init__(self) -> None:
        self.over: list[Episode] = []
        self.raises: list[MemoryRaise] = []
        self.next_samples = math.inf
        self._open: dict[int, _Open] = {}
        self._waiting: list[tuple[float, float, float]] = []  # samples, at_s, move_s

    # --- stragglers and hot PS ----------------------------------------------------------------------------------------

    def begin(self, slot: int, now_s: float, peers: int, size: float = 0.0) -> None:
        """Starts an episode. slot: of a worker, or HOT. An episode of the same slot that is already open continues."""
        self._open.setdefault(slot, _Open(now_s, size, peers))

    def resized(self, workers: int, servers: int) -> None:
        """Records the present number of workers and PS of the job."""
        for slot, one in self._open.items():
            one.peers = min(one.peers, servers if slot == HOT else workers)

    def end(self, slot: int, now_s: float, how: EpisodeEnd) -> None:
        """Ends an episode; does nothing if there is none of this slot."""
        one = self._open.pop(slot, None)
        if one is not None:
            kind: Literal["straggler", "hot"] = "hot" if slot == HOT else "straggler"
            self.over.append(Episode(kind, one.began_s, now_s, how, one.size, one.peers))

    # --- memory -------------------------------------------------------------------------------------------------------

    def more_room(self, at_s: float, samples: float, move_s: float) -> None:
        """Records a raise. samples: number of trained samples at which the earlier memory would have been used up; inf:
        never."""
        if math.isinf(samples):
            self.raises.append(MemoryRaise(at_s, math.inf, move_s))
            return
        self._waiting.append((samples, at_s, move_s))
        self.next_samples = min(self.next_samples, samples)

    def trained(self, before: float, after: float, since_s: float, rate: float) -> None:
        """Judges raises. The job trained from `before` to `after` samples at the constant rate `rate`, from the time
        since_s on."""
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
        """Closes the log at the end of the job. Raises that would have been needed later are left out."""
        for slot in tuple(self._open):
            self.end(slot, now_s, "left")
        self._waiting, self.next_samples = [], math.inf
