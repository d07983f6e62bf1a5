"""Acts on the job that exceeds its estimate most when all jobs together use more memory than there is. Pure.

The ledger charges peaks before jobs start, so this happens only when an estimate was too low, or when the policy does
not count bytes. The steps for one job, each tried when the step before has not helped for PATIENCE_S:

    tighten   the run is lent 1.05 times its estimate: it evicts rows and delays new ids, as under `resources.memory`
    evict     the run saves and exits; the job waits until it can run alone
    kill      the run is killed. At once, without the earlier steps, if the job uses more than 1.5 times its estimate
              and all jobs together more than 1.15 times the memory, or if all jobs use more than 1.3 times the memory

A tightened job gets its charge as its limit again when all jobs have used less than 90 % of the memory for CALM_S, and
the charges of all jobs fit in the memory. The time doubles with each earlier return of the job (`relieved`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from elastichost.human_readable import mib
from elastichost.tuner.colocation.facts import PlacedJob

__all__ = ["Act", "Containment", "offenders", "relieved"]

PATIENCE_S = 3.0  # between two steps for one job
BY_FAR = 1.5  # times its estimate: an estimate is rarely wrong by more
NEARLY = 1.15  # times the memory of all jobs: from here on a job beyond BY_FAR is killed without a wait
FAR_BEYOND = 1.3  # times the memory of all jobs: from here on the job with the largest excess is killed without a wait
SLACK_BYTES = 32 << 20  # least excess over an estimate that counts
CALM = 0.9  # times the memory of all jobs: a use above it may exceed the memory in a moment
CALM_S = 12.0  # four windows of feedback
MOST_DOUBLINGS = 6  # of CALM_S

Kind = Literal["tighten", "loosen", "evict", "kill"]


@dataclass(frozen=True, slots=True)
class Act:
    """One step for one job. limit_bytes: the memory limit that its run is lent (tighten, loosen)."""

    kind: Kind
    job: str
    limit_bytes: int
    reason: str


@dataclass(slots=True)
class Containment:
    """The state of containment. done: job -> its last step and the time of that. calm_since_s: since when the use is
    below CALM; None: it is not. loosened: job -> number of times that its limit was raised again."""

    done: dict[str, tuple[Kind, float]] = field(default_factory=dict)
    calm_since_s: float | None = None
    loosened: dict[str, int] = field(default_factory=dict)

    def not_loosened(self, job: str, now_s: float) -> None:
        """Records that a run did not take a memory limit. After a refused "loosen" the job counts as tightened again.
        After a refused "tighten" nothing changes, so the next step follows."""
        self.done.setdefault(job, ("tighten", now_s))


def offenders(
    state: Containment, running: Sequence[PlacedJob], use: Mapping[str, int], total_bytes: int, now_s: float
) -> Iterator[Act]:
    """Yields at most one act, for the job that exceeds its estimate most. Call it every turn.

    use: job -> bytes that it uses now. total_bytes: the memory that all jobs together may use."""
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
        return  # no job exceeds its estimate: the policy admitted more than the memory
    job, has = worst.demand.job, use[worst.demand.job]
    limit = max(1, int(1.05 * worst.mode.memory_bytes))
    before = state.done.get(job)
    lied_by_far = has > BY_FAR * worst.mode.memory_bytes and used > NEARLY * total_bytes
    is_by_far = lied_by_far or used > FAR_BEYOND * total_bytes
    if before is not None and (before[0] == "kill" or (now_s - before[1] < PATIENCE_S and not is_by_far)):
        return
    kind: Kind = "kill" if is_by_far else "tighten" if before is None else "evict" if before[0] == "tighten" else "kill"
    state.done[job] = (kind, now_s)
    words = {
        "tighten": f"its memory limit becomes {mib(limit)}",
        "evict": "it is evicted",
        "kill": "it is killed",
    }[kind]
    yield Act(
        kind,
        job,
        limit,
        f"all jobs use {mib(used)} of {mib(total_bytes)}; this job uses {mib(has)}, and its "
        f"estimate is {mib(worst.mode.memory_bytes)}: {words}",
    )


def relieved(
    state: Containment, running: Sequence[PlacedJob], use: Mapping[str, int], total_bytes: int, now_s: float
) -> Iterator[Act]:
    """Yields an act for each tightened job that may use its whole charge again. Call it every turn, after
    `offenders`."""
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
            f"all jobs have used less than {CALM:.0%} of {mib(total_bytes)} for {patience_s:.0f} s: the "
            f"job's memory limit is {mib(limit)} again",
        )
