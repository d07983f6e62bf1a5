"""Cores among jobs that compute: how many each gets by their frontiers, and which, so that few change hands. Pure.

How many is `allocate`'s: what gains most per core, jobs with little left first (the sharing of DLRover-RM). Here is
what one host adds:

- Jobs that wait for their input most of the time hold no cores: they *float* over all of them, and as much as they
  demand together is left out of what is shared. A core of its own would be idle most of the time.
- Where not even the least option of every job fits, those that get none float too.
- Cores have numbers. Each job keeps what it has up to what it gets; only the rest changes hands. That is the least
  possible: a job that grows from k to m cores needs m - k new ones, whichever they are.
- What runs is left as it is unless those that change gain 3 % of their speed, counted as `allocate` counts it, and
  those that gain end 5 s sooner in sum: moving costs about that, and speeds are not known better. Where somebody has no
  cores yet, or they no longer suffice, all are dealt anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import RHO, Capacity, JobId, JobOptions, Option, allocate

__all__ = ["FLOATING_CORES", "CoreRequest", "CoreShare", "assigned_cores", "share_cores"]

FLOATING_CORES = 0.3  # a job that keeps less than this busy has none of its own
STAYS_FLOATING = 1.5  # times that, until one that floats gets its own
LEAST_GAIN = 0.03
LEAST_SAVED_S = 5.0


class CoreRequest(msgspec.Struct, frozen=True):
    """options: its frontier, and what of it runs (`current`; None: it was not dealt any yet). cores: numbers of those
    that are its own now; empty: it floats. busy_cores: that it keeps busy as it runs, CPU-seconds per second; None: not
    known. Its options' `cores` are what all its processes need."""

    options: JobOptions
    cores: tuple[int, ...] = ()
    busy_cores: float | None = None

    @property
    def floats(self) -> bool:
        floated = self.options.current is not None and not self.cores
        limit = FLOATING_CORES * (STAYS_FLOATING if floated else 1.0)
        return self.busy_cores is not None and self.busy_cores < limit


class CoreShare(msgspec.Struct, frozen=True):
    """option: index of the job's option; cores: those that its processes may run on; is_own: nobody else's."""

    job: JobId
    option: int
    configuration: Configuration
    cores: tuple[int, ...]
    is_own: bool
    reason: str


def share_cores(jobs: Sequence[CoreRequest], cores: Sequence[int], memory_bytes: int = 0) -> tuple[CoreShare, ...]:
    """What each job gets, in the order of `jobs`. cores: numbers of those that all share; memory_bytes: that they may
    have together, 0: no limit. Raises ValueError for no cores, a core named twice, a job without options, and as
    `allocate` does."""
    if not cores or len(set(cores)) < len(cores):
        raise ValueError(f"cores {tuple(cores)} cannot be shared")
    if any(not job.options.options for job in jobs):
        raise ValueError("every job needs an option")
    floating = [job for job in jobs if job.floats]
    bound = [job for job in jobs if not job.floats]
    taken = round(sum(job.busy_cores or 0.0 for job in floating))
    capacity = Capacity(max(1, len(cores) - taken), memory_bytes)
    allocation = allocate([job.options for job in bound], capacity)
    choices, why = _with_hysteresis(bound, allocation.choices, allocation.reason, capacity)
    owned = assigned_cores(
        {job.options.job: _own(job, cores) for job in bound if job.options.job in choices},
        {
            job.options.job: job.options.options[choices[job.options.job]].cores
            for job in bound
            if job.options.job in choices
        },
        cores,
    )
    return tuple(_share(job, choices, owned, cores, why) for job in jobs)


def _own(job: CoreRequest, cores: Sequence[int]) -> tuple[int, ...]:
    return tuple(core for core in job.cores if core in cores)


def _share(
    job: CoreRequest,
    choices: Mapping[JobId, int],
    owned: Mapping[JobId, tuple[int, ...]],
    cores: Sequence[int],
    why: str,
) -> CoreShare:
    name, options = job.options.job, job.options.options
    if name in owned:
        index = choices[name]
        return CoreShare(name, index, options[index].configuration, owned[name], True, why)
    index = job.options.current if job.options.current is not None else _least(options)
    if job.floats:
        reason = f"keeps {job.busy_cores or 0.0:.2f} cores busy, too few for its own: floats over all {len(cores)}"
    else:
        index = _least(options)
        reason = f"no cores are left for it alone: floats over all {len(cores)}; {why}"
    return CoreShare(name, index, options[index].configuration, tuple(sorted(cores)), False, reason)


def _least(options: Sequence[Option]) -> int:
    return min(range(len(options)), key=lambda index: (options[index].cores, -options[index].samples_per_s))


# --- hysteresis -------------------------------------------------------------------------------------------------------


def _with_hysteresis(
    jobs: Sequence[CoreRequest], proposed: Mapping[JobId, int], reason: str, capacity: Capacity
) -> tuple[Mapping[JobId, int], str]:
    """The choices that hold, and why."""
    now = {job.options.job: job.options.current for job in jobs if job.options.current is not None}
    if len(now) < len(jobs) or not _fit(jobs, now, capacity):
        return proposed, reason
    changed = [job.options for job in jobs if proposed.get(job.options.job) != now[job.options.job]]
    if not changed:
        return now, reason
    gain, saved_s = _gain(changed, now, proposed)
    told = f"those that change gain {gain:.1%} and save {saved_s:,.0f} s"
    if gain < LEAST_GAIN or saved_s < LEAST_SAVED_S:
        return now, f"as before: {told}; {LEAST_GAIN:.0%} and {LEAST_SAVED_S:.0f} s are the least"
    return proposed, f"{told}; {reason}"


def _fit(jobs: Sequence[CoreRequest], now: Mapping[JobId, int], capacity: Capacity) -> bool:
    running = [job.options.options[now[job.options.job]] for job in jobs]
    memory = sum(option.memory_bytes for option in running)
    return sum(option.cores for option in running) <= capacity.cores and (
        not capacity.memory_bytes or memory <= capacity.memory_bytes
    )


def _gain(
    changed: Sequence[JobOptions], now: Mapping[JobId, int], proposed: Mapping[JobId, int]
) -> tuple[float, float]:
    """What the jobs that change gain together, as a share of

        sum of weight / T^rho * speed / speed_least,   T = remaining samples / speed_least  (`allocate`)

    and the seconds that those of them that get faster end sooner, in sum."""
    before = after = saved_s = 0.0
    for job in changed:
        least = max(job.options[_least(job.options)].samples_per_s, 1e-9)
        urgency = job.weight / max(job.remaining_samples / least, 1.0) ** RHO
        old = max(job.options[now[job.job]].samples_per_s, 1e-9)
        new = max(job.options[proposed[job.job]].samples_per_s, 1e-9) if job.job in proposed else 1e-9
        before += urgency * old / least
        after += urgency * new / least
        saved_s += max(0.0, job.remaining_samples / old - job.remaining_samples / new)
    return (after / before - 1 if before > 0 else 0.0), saved_s


# --- core numbers -----------------------------------------------------------------------------------------------------


def assigned_cores(
    own: Mapping[JobId, tuple[int, ...]], counts: Mapping[JobId, int], cores: Sequence[int]
) -> dict[JobId, tuple[int, ...]]:
    """Which cores each job has, sorted: of its own as many as it may keep, else of those that are free, the lowest
    first. own: what each has now; counts: how many each gets. Raises ValueError if they are more than there are."""
    if sum(counts.values()) > len(cores):
        raise ValueError(f"{sum(counts.values())} cores are to be dealt of {len(cores)}")
    kept, taken = dict[JobId, tuple[int, ...]](), set[int]()
    for job, count in counts.items():
        # of a core that two claim, the first keeps it
        mine = tuple(core for core in sorted(own.get(job, ())) if core in cores and core not in taken)[:count]
        kept[job] = mine
        taken |= set(mine)
    free = iter(sorted(set(cores) - taken))
    return {
        job: tuple(sorted((*mine, *(next(free) for _ in range(counts[job] - len(mine)))))) for job, mine in kept.items()
    }
