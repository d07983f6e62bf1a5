"""When jobs together use more memory than there is: who has more than it said gives it back, the others go on. Pure.

The ledger charges peaks, so this happens when a job lied, or its estimate was wrong. In this order, each when the one
before has not helped for some seconds:

    tighten   its run is lent what it was charged: rows are dropped, ids wait, as `resources.memory` has it for one run
    evict     it saves, ends, and waits until it can run alone
    kill      at once, when it has far more than it was charged and they use far more than there is

Who was tightened has its charge as its limit again when jobs have used clearly less than there is for a while and what
all of them are charged is there; after each time it takes twice as long (`relieved`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from elastichost.tuner.colocation.facts import PlacedJob

__all__ = ["Act", "Containment", "offenders", "relieved"]

PATIENCE_S = 3.0  # of one step, until the next is tried
BY_FAR = 1.5  # times what it was charged: no estimate errs so
NEARLY = 1.15  # times all that jobs may have together, from which nothing can be waited for
FAR_BEYOND = 1.3  # times all, from which whoever has most beyond its estimate ends, whatever that was
SLACK_BYTES = 32 << 20
CALM = 0.9  # times all: what is above it may be too much in a moment
CALM_S = 12.0  # some windows of feedback
MOST_DOUBLINGS = 6

Kind = Literal["tighten", "loosen", "evict", "kill"]


@dataclass(frozen=True, slots=True)
class Act:
    """limit_bytes: what the job is lent from now on."""

    kind: Kind
    job: str
    limit_bytes: int
    reason: str


@dataclass(slots=True)
class Containment:
    """What was done last to whom, and when. calm_since_s: nothing has pressed since; loosened: how often, by job."""

    done: dict[str, tuple[Kind, float]] = field(default_factory=dict)
    calm_since_s: float | None = None
    loosened: dict[str, int] = field(default_factory=dict)

    def not_loosened(self, job: str, now_s: float) -> None:
        """Its run has not taken the limit: it is as tight as before. A limit that was to be tightened and was not
        taken is followed by the next step, as one that did not help."""
        self.done.setdefault(job, ("tighten", now_s))


def offenders(
    state: Containment, running: Sequence[PlacedJob], use: Mapping[str, int], total_bytes: int, now_s: float
) -> Iterator[Act]:
    """One act at most: against the job that has most beyond what it was admitted with. use: bytes now, by job;
    total_bytes: that all jobs together may have."""
    names = {one.demand.job for one in running}
    for known in (state.done, state.loosened):
        for gone in known.keys() - names:
            del known[gone]
    used = sum(use.get(job, 0) for job in names)
    if used <= total_bytes:
        return
    worst, beyond = None, 0
    for one in running:
        admitted = max(one.mode.memory_bytes, 1)
        excess = use.get(one.demand.job, 0) - admitted
        if excess > max(beyond, SLACK_BYTES):
            worst, beyond = one, excess
    if worst is None:
        return  # each has what it said: estimates were admitted beyond what there is
    job, has = worst.demand.job, use[worst.demand.job]
    limit = max(1, int(1.05 * worst.mode.memory_bytes))
    before = state.done.get(job)
    lied_by_far = has > BY_FAR * worst.mode.memory_bytes and used > NEARLY * total_bytes
    is_by_far = lied_by_far or used > FAR_BEYOND * total_bytes
    if before is not None and (before[0] == "kill" or (now_s - before[1] < PATIENCE_S and not is_by_far)):
        return
    kind: Kind = "kill" if is_by_far else "tighten" if before is None else "evict" if before[0] == "tighten" else "kill"
    state.done[job] = (kind, now_s)
    words = {"tighten": "it is lent no more than that", "evict": "it saves and ends", "kill": "it is killed"}[kind]
    yield Act(
        kind,
        job,
        limit,
        f"jobs use {used / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB; it has {has / 1e6:,.0f} MB and was estimated at "
        f"{worst.mode.memory_bytes / 1e6:,.0f}: {words}",
    )


def relieved(
    state: Containment, running: Sequence[PlacedJob], use: Mapping[str, int], total_bytes: int, now_s: float
) -> Iterator[Act]:
    """Who may have its charge again. To be asked as often as `offenders`, after it."""
    used = sum(use.get(one.demand.job, 0) for one in running)
    is_promised = len(running) > 1 and sum(one.charged_bytes for one in running) > total_bytes
    if used > CALM * total_bytes or is_promised:
        state.calm_since_s = None
        return
    if state.calm_since_s is None:
        state.calm_since_s = now_s
    for one in running:
        job = one.demand.job
        kind, done_s = state.done.get(job, ("", 0.0))
        times = state.loosened.get(job, 0)
        patience_s = CALM_S * 2 ** min(times, MOST_DOUBLINGS)
        if kind != "tighten" or now_s - max(done_s, state.calm_since_s) < patience_s:
            continue
        del state.done[job]
        state.loosened[job] = times + 1
        limit = min(one.charged_bytes, total_bytes)
        yield Act(
            "loosen",
            job,
            limit,
            f"jobs have used less than {CALM:.0%} of {total_bytes / 1e6:,.0f} MB for {patience_s:.0f} s: it is lent "
            f"{limit / 1e6:,.0f} MB again",
        )
