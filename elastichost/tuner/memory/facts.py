"""One sample of a job's memory, and a decision about it. Pure values."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["AGE_EDGES", "Action", "HostMemorySample", "MemoryDecision", "MemoryKind", "MemorySample"]

Action = Literal["move", "evict", "admit", "shrink"]
MemoryKind = Literal["stay", "move", "evict", "admit", "shrink", "warn"]

# upper edges of the classes of ages, in samples
AGE_EDGES = tuple(round(4096 * 1.5**number) for number in range(48))


class HostMemorySample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory of one host. used_bytes: taken or committed memory. place_bytes: the part of it for rows, in use or
    free. share: share of new rows that this host gets. may_take: buckets can move to this host, if necessary to a PS
    that is started for them."""

    host: int
    budget_bytes: int
    used_bytes: int
    place_bytes: float
    share: float
    may_take: bool = False


class MemorySample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sample of a job's memory. Bytes of rows include everything that a row costs.

    samples, samples_left: trained samples, and samples still to train.
    made_bytes: bytes of all rows ever made. row_bytes: mean bytes of one row. live_bytes: bytes of rows that are not
    dropped; own_bytes: the part of them in tables whose own age (`evict_after`) is in the job file.
    new_ids_until: number of samples after which no new ids come, because the data repeat; 0: not known.
    ages: cumulative bytes of live rows that were unseen for at most AGE_EDGES samples, in tables without an own age;
    own_ages: the same for tables with an own age. (): not counted. ages_from: sample since which sightings are counted.
    possible: allowed actions in the order of preference. action_s: seconds that an action takes. grace_s: seconds for
    which the place of a dropped row stays unused.
    horizon, admit_after: values in force; 0 and 1: none. shortens_own: the horizon also applies to tables with an own
    age. left_out: lookups of ids without a row. workers, worker_bytes: number of workers, bytes of one worker;
    least_workers: the least number that the job file allows."""

    samples: int
    samples_left: int
    samples_per_s: float
    made_bytes: float
    row_bytes: float
    live_bytes: float
    own_bytes: float
    hosts: tuple[HostMemorySample, ...]
    possible: tuple[Action, ...] = ()
    action_s: float = 5.0
    grace_s: float = 1.0
    new_ids_until: int = 0
    ages: tuple[float, ...] = ()
    own_ages: tuple[float, ...] = ()
    ages_from: int = 0
    horizon: int = 0
    shortens_own: bool = False
    least_horizon: int = 8192
    admit_after: int = 1
    left_out: int = 0
    workers: int = 1
    worker_bytes: int = 0
    least_workers: int = 1


class MemoryDecision(msgspec.Struct, frozen=True):
    """A decision about memory.

    kind: the action, "warn" or "stay". host, chance: the host that most probably exceeds its budget, and the
    probability that it does within window_s seconds. exceeds_in_s: expected seconds until then; None: not before the
    end of the run. wants_ages: the next samples should contain ages. horizon, shortens_own: for "evict". admit_after:
    for "admit". workers: for "shrink". target, share: for "move", the share of `host`'s rows that moves to `target`.
    is_news: the decision gets an event."""

    kind: MemoryKind
    reason: str
    host: int = 0
    chance: float = 0.0
    window_s: float = 0.0
    exceeds_in_s: float | None = None
    wants_ages: bool = False
    horizon: int = 0
    shortens_own: bool = False
    admit_after: int = 1
    workers: int = 1
    target: int = 0
    share: float = 0.0
    is_news: bool = False
