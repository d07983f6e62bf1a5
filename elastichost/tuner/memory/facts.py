"""What is known of a job's memory at one moment, and what is decided about it. Pure values."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["AGE_EDGES", "Action", "HostMemorySample", "MemoryDecision", "MemoryKind", "MemorySample"]

Action = Literal["move", "evict", "admit", "shrink"]
MemoryKind = Literal["stay", "move", "evict", "admit", "shrink", "warn"]

# Ages are counted up to these numbers of samples.
AGE_EDGES = tuple(round(4096 * 1.5**number) for number in range(48))


class HostMemorySample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """used_bytes: all that is taken or committed; place_bytes: of it for rows, in use or free. share: of the rows that
    come. may_take: buckets can go there, if need be to a PS that is started for it."""

    host: int
    budget_bytes: int
    used_bytes: int
    place_bytes: float
    share: float
    may_take: bool = False


class MemorySample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of rows count everything that a row costs.

    made_bytes: of all rows ever made; row_bytes: of one on average; live_bytes: of those that are not dropped;
    own_bytes: of these in tables whose age the job file says. new_ids_until: samples after which none come any more
    (the data begin anew), 0: not known. ages: bytes of live rows unseen for at most AGE_EDGES samples, but for tables
    of their own age, whose are own_ages; (): not counted. ages_from: sample since which sightings are noted. possible:
    what may be done, action_s: how long that takes, grace_s: how long the place of a dropped row lies idle. horizon,
    admit_after: in force, 0 and 1: none. left_out: sightings of ids that went without a row. least_workers: that the
    job file asks for."""

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
    """chance: of exceeding the budget of `host` within window_s; exceeds_in_s: when it is expected, None: not before
    the end. wants_ages: the next looks should count them. share: of `host`'s rows, to go to `target`."""

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
