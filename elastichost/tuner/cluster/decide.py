"""Decides which configuration each of many jobs has, and with how many cores. Pure.

`placement.allocation` finds the division with the largest value: speed against cores at the prices of the present jobs,
jobs with little left first. This module adds the rules of changes:

- A job grows only if it gains LEAST_GAIN of its speed and ends LEAST_SAVED_S sooner. A change costs about that much,
  and speeds are not known more exactly.
- A job gives cores only to jobs that gain enough: LEAST_GAIN of their value, weight / T^rho * speed / speed_least as in
  `allocation`, beyond the price of the cores that they take. It also gives cores with which it is no faster.
- *All together* the changes must bring LEAST_GAIN and save LEAST_SAVED_S; otherwise all jobs stay. If a job has nothing
  yet, or the present division no longer fits, the changes are always made.
- A job whose running configuration was not measured yet changes only if a job came or ended, because otherwise nothing
  new is known, or if the jobs that may not change do not fit together.
- A job that stays gets what its own tuner proposes, if that needs no more cores than it has.
- On one host, a job that waits for its input most of the time gets no cores of its own, because they would mostly be
  idle. It *floats*: its processes may run on all cores. The cores that all floating jobs keep busy together are
  deducted from the cores that are divided. Jobs for which no cores are left float too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elastichost.tuner.cluster.facts import ClusterView, Grant, JobView
from elastichost.tuner.placement.allocation import (
    MOST_ITEMS,
    RHO,
    Capacity,
    JobId,
    JobOptions,
    OptionArray,
    allocate,
)

__all__ = ["decide", "floats"]

FLOATING_CORES = 0.3  # a job that keeps fewer cores busy than this floats
STAYS_FLOATING = 1.5  # a floating job gets its own cores when it keeps this many times FLOATING_CORES busy
LEAST_GAIN = 0.1  # predictions of speeds that were not measured have errors of about this size
LEAST_SAVED_S = 5.0
TIME_LIMIT_S = 60.0  # the limit of nodes ends a search, not the time, so all machines decide alike


def decide(view: ClusterView, *, is_exact: bool = True) -> tuple[Grant, ...]:
    """Returns the grants of the jobs that run from now on, in the order of `view.jobs`; the other jobs wait. is_exact:
    False: without an exact search. Raises ValueError for a job without options, and as `allocation.allocate`."""
    if any(not len(job.options) for job in view.jobs):
        raise ValueError("every job must have at least one option")
    floating = {job.job for job in view.jobs if view.is_one_host and floats(job)}
    fixed = {job.job for job in view.jobs if job.job not in floating and not _may_change(job, view)}
    if sum(_current(job).cores for job in view.jobs if job.job in fixed) > view.cores:
        fixed = {job.job for job in view.jobs if job.job in fixed and job.is_changing}  # they do not fit any more
    bound = [job for job in view.jobs if job.job not in floating and job.job not in fixed]
    taken = [_current(job) for job in view.jobs if job.job in fixed]
    busy = round(sum(job.busy_cores or 0.0 for job in view.jobs if job.job in floating))
    memory = view.memory_bytes - sum(one.memory_bytes for one in taken) if view.memory_bytes else 0
    free = view.cores - sum(one.cores for one in taken)
    if free > 0:  # floating jobs leave one core at least
        capacity = Capacity(max(1, free - busy), memory)
        asked = [JobOptions(job.job, max(job.samples_left, 1.0), job.options, job.current, job.weight) for job in bound]
        found = allocate(asked, capacity, TIME_LIMIT_S, MOST_ITEMS if is_exact else 0)
        choices, reason = _settled(_Changes.of(bound, found.choices, found.core_price, capacity), found.reason)
    else:
        choices, reason = dict[JobId, int](), "jobs that may not change have all cores"
    choices |= {job.job: job.current for job in view.jobs if job.job in fixed and job.current is not None}
    grants = (_grant(job, choices.get(job.job), view, reason, floats=job.job in floating) for job in view.jobs)
    return tuple(grant for grant in grants if grant is not None)


def floats(job: JobView) -> bool:
    """Whether a running job keeps so few cores busy that it floats."""
    limit = FLOATING_CORES * (1.0 if job.has_own_cores else STAYS_FLOATING)
    return job.busy_cores is not None and job.busy_cores < limit


def _may_change(job: JobView, view: ClusterView) -> bool:
    return job.current is None or (not job.is_changing and (job.is_measured or view.has_news))


def _current(job: JobView) -> _Chosen:
    assert job.current is not None
    option = job.options[job.current]
    return _Chosen(option.samples_per_s, option.cores, option.memory_bytes)


def _grant(job: JobView, choice: int | None, view: ClusterView, reason: str, *, floats: bool) -> Grant | None:
    cores = view.cores
    if choice is None:
        if not view.is_one_host:
            return None
        keeps = floats and job.current is not None
        index = job.current if keeps and job.current is not None else _least(job.options)
        why = f"no cores are left for this job alone: it may use all {cores}; {reason}"
        if floats:
            why = f"keeps only {job.busy_cores or 0.0:.2f} cores busy: no cores of its own, may use all {cores}"
    else:
        index, why, cores = choice, reason, job.options[choice].cores
    option, own = job.options[index], job.proposal
    if own is not None and index == job.current and not job.is_changing and own.cores <= option.cores:
        why = "its own tuner proposes it, and it needs no more cores"
        return Grant(job.job, index, own.configuration, cores, choice is not None, why, is_proposal=True)
    return Grant(job.job, index, option.configuration, cores, choice is not None, why)


def _least(options: Sequence[object] | OptionArray) -> int:
    array = options if isinstance(options, OptionArray) else OptionArray.of(options)  # type: ignore[arg-type]
    return int(np.lexsort((-array.samples_per_s, array.cores))[0])


# --- changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    samples_per_s: float
    cores: int
    memory_bytes: int


@dataclass(slots=True)
class _Change:
    """A running job whose option would change. urgency: value of a sample/s. net: gain in value less the price of the
    additional cores, as a share of the job's value. saved_s: seconds that the job ends sooner; negative: later."""

    job: JobId
    before: int
    after: int
    old: _Chosen
    new: _Chosen
    urgency: float
    net: float
    saved_s: float

    @property
    def more(self) -> int:
        return self.new.cores - self.old.cores


@dataclass(slots=True)
class _Changes:
    """The proposed choices. is_open: a job has nothing yet, or the present division does not fit, so the changes must
    not all be undone. spare: cores and bytes that the choices leave."""

    choices: dict[JobId, int]
    _changed: dict[JobId, _Change]
    is_open: bool
    spare: list[float]

    @classmethod
    def of(
        cls, jobs: Sequence[JobView], proposed: Mapping[JobId, int], core_price: float, capacity: Capacity
    ) -> _Changes:
        changed, used, present, waits = dict[JobId, _Change](), [0.0, 0.0], [0.0, 0.0], False
        for job in jobs:
            after = proposed.get(job.job)
            if after is not None:
                used[0] += float(_column(job.options, "cores")[after])
                used[1] += float(_column(job.options, "memory_bytes")[after])
            if job.current is None:
                waits = True
                continue
            present[0] += float(_column(job.options, "cores")[job.current])
            present[1] += float(_column(job.options, "memory_bytes")[job.current])
            if after is None:
                waits = True
            elif after != job.current:
                changed[job.job] = _change(job, after, core_price)
        rooms = (capacity.cores, capacity.memory_bytes or np.inf)
        fits = all(one <= room for one, room in zip(present, rooms, strict=True))
        spare = [float(room - one) for one, room in zip(used, rooms, strict=True)]
        return cls(dict(proposed), changed, waits or not fits, spare)

    @property
    def changed(self) -> list[_Change]:
        return list(self._changed.values())

    def undo(self, change: _Change) -> None:
        self.choices[change.job] = change.before
        self.spare[0] += change.more
        self.spare[1] += change.new.memory_bytes - change.old.memory_bytes
        del self._changed[change.job]


def _column(options: Sequence[object] | OptionArray, name: str) -> Sequence[float]:
    if isinstance(options, OptionArray):
        found: Sequence[float] = getattr(options, name)
        return found
    return [getattr(one, name) for one in options]


def _change(job: JobView, after: int, core_price: float) -> _Change:
    assert job.current is not None
    old, new = (job.options[at] for at in (job.current, after))
    least = max(float(_column(job.options, "samples_per_s")[_least(job.options)]), 1e-9)
    urgency = job.weight / max(job.samples_left / least, 1.0) ** RHO / least
    before, then = max(old.samples_per_s, 1e-9), max(new.samples_per_s, 1e-9)
    gain = urgency * (then - before) - core_price * (new.cores - old.cores)
    return _Change(
        job=job.job,
        before=job.current,
        after=after,
        old=_Chosen(before, old.cores, old.memory_bytes),
        new=_Chosen(then, new.cores, new.memory_bytes),
        urgency=urgency,
        net=gain / (urgency * before) if urgency > 0 else 0.0,
        saved_s=job.samples_left / before - job.samples_left / then,
    )


def _settled(changes: _Changes, reason: str) -> tuple[dict[JobId, int], str]:
    """The choices without the changes that do not pay, and the reason."""
    if not changes.changed:
        return changes.choices, reason
    told, _ = _told(changes.changed)
    for one in filter(_is_growth, changes.changed):
        if one.new.samples_per_s < (1 + LEAST_GAIN) * one.old.samples_per_s or one.saved_s < LEAST_SAVED_S:
            changes.undo(one)
    # growths that do not pay for their cores, the worst last
    low = [one for one in _by_net(changes) if one.more > 0 and one.net < LEAST_GAIN and _is_growth(one)][::-1]
    for one in [one for one in _by_net(changes) if _is_loss(one)]:
        _keep(changes, one, low)
    if changes.changed:
        told, pays = _told(changes.changed)
        if changes.is_open or pays:
            return changes.choices, f"{told}; {reason}"
        for one in changes.changed:
            changes.undo(one)
    return changes.choices, f"unchanged: {told}; required are at least {LEAST_GAIN:.0%} and {LEAST_SAVED_S:.0f} s"


def _is_growth(change: _Change) -> bool:
    return change.more >= 0 and change.new.memory_bytes >= change.old.memory_bytes


def _is_loss(change: _Change) -> bool:
    return change.more < 0 and change.new.samples_per_s < change.old.samples_per_s


def _by_net(changes: _Changes) -> list[_Change]:
    return sorted(changes.changed, key=lambda one: (one.net, str(one.job)))


def _keep(changes: _Changes, shrink: _Change, low: list[_Change]) -> None:
    """Undoes a shrink, if spare cores suffice, or those of the growths in `low`; these are undone then too."""
    if shrink.old.memory_bytes - shrink.new.memory_bytes > changes.spare[1]:
        return
    taken, missing = 0, -shrink.more - changes.spare[0]
    while missing > 0 and taken < len(low):
        taken += 1
        missing -= low[-taken].more
    if missing <= 0:
        for _ in range(taken):
            changes.undo(low.pop())
        changes.undo(shrink)


def _told(changed: Sequence[_Change]) -> tuple[str, bool]:
    """The gain of the jobs that change together, in words, and whether it is worth the changes."""
    before = sum(one.urgency * one.old.samples_per_s for one in changed)
    after = sum(one.urgency * one.new.samples_per_s for one in changed)
    gain = after / before - 1 if before > 0 else 0.0
    saved_s = sum(max(0.0, one.saved_s) for one in changed)
    pays = gain >= LEAST_GAIN and saved_s >= LEAST_SAVED_S
    return f"a change gains {gain:.1%} speed and saves {saved_s:,.0f} s", pays
