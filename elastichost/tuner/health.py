"""Workers that are far slower than the others: told of, and replaced when there is no hope. Pure.

Speeds are compared per thread, and among workers of one kind (on CPU, or on GPU). A worker's speed is the samples it
trains in a second of its own computing, and in a second of wall time less what it waited for its peers; both must be
low, so that one that is only short of input, or held up by others, is not blamed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from elastichost.plan import ProcessId

__all__ = ["HealthSettings", "HealthState", "Remark", "WorkerSpeed", "observe"]

SLOW = 0.75  # of the median of the others


class HealthSettings(msgspec.Struct, frozen=True):
    """after_s: how long a worker must have been slow. replace_every_s: at most one replacement of a worker (of its
    index) within this time. hopeless: below this share of the others it is replaced; on one host its successor gets the
    same cores, so little is to be hoped from that, in a cluster others."""

    after_s: float
    replace_every_s: float = 300.0
    hopeless: float = 0.25


class WorkerSpeed(msgspec.Struct, frozen=True):
    """Samples per second and thread, over the last seconds; None: nothing was trained in them, what was known before
    holds. `wall_per_s` is None in sync mode as well, where a step's wall time is everybody's. `has_work`: it could
    train."""

    process: ProcessId
    compute_per_s: float | None
    wall_per_s: float | None
    has_work: bool
    is_gpu: bool = False


class Remark(msgspec.Struct, frozen=True):
    """A worker is slow. `replace`: hopelessly; it should be killed and started again."""

    process: ProcessId
    replace: bool
    reason: str


class _Incarnation(msgspec.Struct, frozen=True):
    """`hopeless_s`, `slow_s`: since when; None: it is not."""

    compute_per_s: float | None = None
    wall_per_s: float | None = None
    hopeless_s: float | None = None
    slow_s: float | None = None
    was_told: bool = False


class HealthState(msgspec.Struct, frozen=True):
    """What was seen so far; `replaced_s`: worker index -> when it was replaced last."""

    incarnations: Mapping[ProcessId, _Incarnation] = {}
    replaced_s: Mapping[int, float] = {}


def observe(
    state: HealthState, speeds: Sequence[WorkerSpeed], settings: HealthSettings, now_s: float
) -> tuple[HealthState, tuple[Remark, ...]]:
    """Folds one look at all working workers. At most one of them is to be replaced at a time."""
    known = {speed.process: _remember(state.incarnations.get(speed.process, _Incarnation()), speed) for speed in speeds}
    incarnations, replaced, remarks = dict[ProcessId, _Incarnation](), dict(state.replaced_s), list[Remark]()
    kinds = {kind: _Kind.of(known[one.process] for one in speeds if one.is_gpu == kind) for kind in (False, True)}
    for speed in sorted(speeds, key=lambda one: one.process):
        share = kinds[speed.is_gpu].share(known[speed.process]) if speed.has_work else None
        incarnation = _judge(known[speed.process], share, settings, now_s)
        remark = _remark(speed.process, incarnation, share, replaced, settings, now_s)
        if remark is not None and remark.replace:
            if any(earlier.replace for earlier in remarks):
                remark = None  # its turn comes, if it is still slow beside the others then
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
    """Workers of one kind, that are compared: what is known of their speeds, in order."""

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
        """Its speed as a share of the others' median, by what is kinder to it; None: nothing to compare."""
        shares = (
            _ratio(incarnation.compute_per_s, self.compute_per_s),
            _ratio(incarnation.wall_per_s, self.wall_per_s),
        )
        return None if shares[0] is None else max(share for share in shares if share is not None)


def _ratio(own: float | None, speeds: Sequence[float]) -> float | None:
    """own: one of `speeds`, which are in order."""
    if own is None or len(speeds) < 2:
        return None
    middle = _median_without(speeds, bisect_left(speeds, own))
    return own / middle if middle > 0 else None


def _median_without(values: Sequence[float], left_out: int) -> float:
    """Of all values, which are in order, but the one at that place: without a copy of them for each of them."""

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
    text = f"it trains {share:.0%} of the samples in a second that the others do, for"
    last_s = replaced_s.get(process.index)
    may_replace = last_s is None or now_s - last_s >= settings.replace_every_s
    if incarnation.hopeless_s is not None and now_s - incarnation.hopeless_s >= settings.after_s and may_replace:
        return Remark(process, True, f"{text} {now_s - incarnation.hopeless_s:.0f} s")
    if now_s - incarnation.slow_s >= settings.after_s and not incarnation.was_told:
        why_not = "" if incarnation.hopeless_s is None else _why_not(last_s, now_s)
        return Remark(process, False, f"{text} {now_s - incarnation.slow_s:.0f} s{why_not}")
    return None


def _why_not(last_s: float | None, now_s: float) -> str:
    return "" if last_s is None else f"; it was replaced {now_s - last_s:.0f} s ago, which did not help"
