"""Finds workers that are far slower than the other workers; reports them, and replaces the slowest. Pure.

Speeds are compared per thread, and only among workers of one kind (on CPU, or on GPU). A worker has two speeds: samples
per second of its own computing, and samples per second of wall time without the time in which it waits for its peers.
A worker is slow only if both are low. So a worker that waits for input or for other workers is not reported.

Theory of operation. The caller calls `observe` with one sample of all working workers at a time; the state is folded.
For each worker `share` = its speed / the median speed of the other workers of its kind, for both speeds; the larger of
the two shares counts. A share below SLOW starts the worker's `slow_s` clock, a share below `hopeless` its `hopeless_s`
clock; a share above the limit stops the clock. After `after_s` on the first clock the worker is reported once. After
`after_s` on the second clock it is reported with `replace=True`: the caller kills it and starts it again. At most one
worker is replaced in one sample, and a worker index at most once in `replace_every_s`. A new incarnation of a worker
starts with new clocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from elastichost.plan import ProcessId

__all__ = ["HealthSettings", "HealthState", "Remark", "WorkerSpeed", "observe"]

SLOW = 0.75  # share of the median speed of the other workers, below which a worker is slow


class HealthSettings(msgspec.Struct, frozen=True):
    """after_s: seconds that a worker must be slow before it is reported or replaced. replace_every_s: least seconds
    between two replacements of the same worker index. hopeless: share of the others' median speed below which a worker
    is replaced. A replacement costs 0.15 s of one worker. A worker at 0.4 loses four times as much every second, so it
    pays if it helps in one case of hundreds. On one host the new worker gets the same cores, and it rarely helps; in a
    cluster it may get other cores. The simulator uses the same value."""

    after_s: float
    replace_every_s: float = 300.0
    hopeless: float = 0.4


class WorkerSpeed(msgspec.Struct, frozen=True):
    """The speed of one worker over the last seconds, in samples per second and thread.

    None: the worker trained nothing in these seconds, and its last speed stays valid. In sync mode `wall_per_s` is
    always None, because all workers share the wall time of a step. has_work: the worker had samples to train."""

    process: ProcessId
    compute_per_s: float | None
    wall_per_s: float | None
    has_work: bool
    is_gpu: bool = False


class Remark(msgspec.Struct, frozen=True):
    """A worker is slow. replace: it is below the `hopeless` share, and should be killed and started again."""

    process: ProcessId
    replace: bool
    reason: str


class _Incarnation(msgspec.Struct, frozen=True):
    """What is stored of one worker process. hopeless_s, slow_s: time since which it is below the limit; None: it is not
    below. was_told: it was reported."""

    compute_per_s: float | None = None
    wall_per_s: float | None = None
    hopeless_s: float | None = None
    slow_s: float | None = None
    was_told: bool = False


class HealthState(msgspec.Struct, frozen=True):
    """The folded samples. replaced_s: worker index -> time of its last replacement, in seconds."""

    incarnations: Mapping[ProcessId, _Incarnation] = {}
    replaced_s: Mapping[int, float] = {}


def observe(
    state: HealthState, speeds: Sequence[WorkerSpeed], settings: HealthSettings, now_s: float
) -> tuple[HealthState, tuple[Remark, ...]]:
    """Folds one sample of all working workers, and returns the new state and the remarks. At most one remark of a
    sample has `replace`."""
    known = {speed.process: _remember(state.incarnations.get(speed.process, _Incarnation()), speed) for speed in speeds}
    incarnations, replaced, remarks = dict[ProcessId, _Incarnation](), dict(state.replaced_s), list[Remark]()
    kinds = {kind: _Kind.of(known[one.process] for one in speeds if one.is_gpu == kind) for kind in (False, True)}
    for speed in sorted(speeds, key=lambda one: one.process):
        share = kinds[speed.is_gpu].share(known[speed.process]) if speed.has_work else None
        incarnation = _judge(known[speed.process], share, settings, now_s)
        remark = _remark(speed.process, incarnation, share, replaced, settings, now_s)
        if remark is not None and remark.replace:
            if any(earlier.replace for earlier in remarks):
                remark = None  # a later sample replaces this worker if it is still slow compared with the others then
            else:
                replaced[speed.process.index] = now_s
        if remark is not None:
            remarks.append(remark)
            incarnation = msgspec.structs.replace(incarnation, was_told=True)
        incarnations[speed.process] = incarnation
    return HealthState(incarnations, replaced), tuple(remarks)


def _remember(incarnation: _Incarnation, speed: WorkerSpeed) -> _Incarnation:
    if speed.compute_per_s is None:
        return incarnation
    return msgspec.structs.replace(incarnation, compute_per_s=speed.compute_per_s, wall_per_s=speed.wall_per_s)


class _Kind(NamedTuple):
    """The speeds of all workers of one kind, sorted."""

    compute_per_s: tuple[float, ...]
    wall_per_s: tuple[float, ...]

    @classmethod
    def of(cls, incarnations: Iterable[_Incarnation]) -> _Kind:
        known = tuple(incarnations)
        return cls(
            tuple(sorted(incarnation.compute_per_s for incarnation in known if incarnation.compute_per_s is not None)),
            tuple(sorted(incarnation.wall_per_s for incarnation in known if incarnation.wall_per_s is not None)),
        )

    def share(self, incarnation: _Incarnation) -> float | None:
        """The worker's speed as a share of the others' median: the larger of its two shares. None: there is no other
        worker to compare with."""
        shares = (
            _ratio(incarnation.compute_per_s, self.compute_per_s),
            _ratio(incarnation.wall_per_s, self.wall_per_s),
        )
        return None if shares[0] is None else max(share for share in shares if share is not None)


def _ratio(own: float | None, speeds: Sequence[float]) -> float | None:
    """`own` as a share of the median of the others. own: one of `speeds`; speeds: sorted. None: not comparable."""
    if own is None or len(speeds) < 2:
        return None
    middle = _median_without(speeds, bisect_left(speeds, own))
    return own / middle if middle > 0 else None


def _median_without(values: Sequence[float], left_out: int) -> float:
    """The median of sorted `values` without the one at index `left_out`. Makes no copy, because it is called for each
    worker."""

    def at(place: int) -> float:
        return values[place if place < left_out else place + 1]

    half, odd = divmod(len(values) - 1, 2)
    return at(half) if odd else (at(half - 1) + at(half)) / 2


def _judge(incarnation: _Incarnation, share: float | None, settings: HealthSettings, now_s: float) -> _Incarnation:
    is_hopeless, is_slow = share is not None and share < settings.hopeless, share is not None and share < SLOW
    return msgspec.structs.replace(
        incarnation,
        hopeless_s=(now_s if incarnation.hopeless_s is None else incarnation.hopeless_s) if is_hopeless else None,
        slow_s=(now_s if incarnation.slow_s is None else incarnation.slow_s) if is_slow else None,
    )


def _remark(
    process: ProcessId,
    incarnation: _Incarnation,
    share: float | None,
    replaced_s: Mapping[int, float],
    settings: HealthSettings,
    now_s: float,
) -> Remark | None:
    if share is None or incarnation.slow_s is None:
        return None
    text = f"its speed is {share:.0%} of the median of the other workers for"
    last_s = replaced_s.get(process.index)
    may_replace = last_s is None or now_s - last_s >= settings.replace_every_s
    if incarnation.hopeless_s is not None and now_s - incarnation.hopeless_s >= settings.after_s and may_replace:
        return Remark(process, True, f"{text} {now_s - incarnation.hopeless_s:.0f} s")
    if now_s - incarnation.slow_s >= settings.after_s and not incarnation.was_told:
        why_not = "" if incarnation.hopeless_s is None else _why_not(last_s, now_s)
        return Remark(process, False, f"{text} {now_s - incarnation.slow_s:.0f} s{why_not}")
    return None


def _why_not(last_s: float | None, now_s: float) -> str:
    return "" if last_s is None else f"; it was already replaced {now_s - last_s:.0f} s ago, and is still slow"
