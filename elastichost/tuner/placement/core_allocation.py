"""Divides the cores of one host among jobs: how many cores each job gets, and which ones. Pure.

`allocation.allocate` decides the number of cores: the largest gain per core, jobs with little left first (the sharing
of DLRover-RM). This module adds the rules of one host:

- A job that waits for its input most of the time gets no cores of its own, because they would mostly be idle. It
  *floats*: its processes may run on all cores. The cores that all floating jobs keep busy together are deducted from
  the cores that are divided.
- If not even the cheapest option of every job fits, the jobs that get no option float too.
- Cores have numbers. Each job keeps its present cores up to its new number, and only the others change their job. That
  is the smallest possible change: a job that grows from k to m cores needs m - k new ones in any case.
- The present division is kept unless the jobs that change gain 3 % together (in the measure of `allocate`), and the
  jobs that become faster end 5 s sooner in total. A change costs about that much, and speeds are not known more
  exactly. If a job has no cores yet, or the present division no longer fits, the new division is always used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import RHO, Capacity, JobId, JobOptions, Option, allocate

__all__ = ["FLOATING_CORES", "CoreRequest", "CoreShare", "assigned_cores", "share_cores"]

FLOATING_CORES = 0.3  # a job that keeps fewer cores busy than this floats
STAYS_FLOATING = 1.5  # a floating job gets its own cores when it keeps this many times FLOATING_CORES busy
LEAST_GAIN = 0.03
LEAST_SAVED_S = 5.0


class CoreRequest(msgspec.Struct, frozen=True):
    """A job that needs cores.

    options: its frontier; `current` is the running option, None: it has no cores yet. The `cores` of an option are
    those of all its processes. cores: numbers of the job's own cores; empty: it floats. busy_cores: cores that the
    running job keeps busy, CPU-seconds per second; None: not known."""

    options: JobOptions
    cores: tuple[int, ...] = ()
    busy_cores: float | None = None

    @property
    def floats(self) -> bool:
        """Whether the job keeps so few cores busy that it floats."""
        floated = self.options.current is not None and not self.cores
        limit = FLOATING_CORES * (STAYS_FLOATING if floated else 1.0)
        return self.busy_cores is not None and self.busy_cores < limit


class CoreShare(msgspec.Struct, frozen=True):
    """The cores of one job. option: index of its option. cores: numbers of the cores that its processes may use.
    is_own: no other job gets these cores as its own; False: the job floats."""

    job: JobId
    option: int
    configuration: Configuration
    cores: tuple[int, ...]
    is_own: bool
    reason: str


def share_cores(jobs: Sequence[CoreRequest], cores: Sequence[int], memory_bytes: int = 0) -> tuple[CoreShare, ...]:
    """Returns the cores and the option of each job, in the order of `jobs`.

    cores: numbers of the cores to divide. memory_bytes: memory of all jobs together; 0: no limit. Raises ValueError for
    no cores, for a repeated core, for a job without options, and as `allocate`."""
    if not cores or len(set(cores)) < len(cores):
        raise ValueError(f"cores={tuple(cores)} must contain at least one core and no core twice")
    if any(not job.options.options for job in jobs):
        raise ValueError("every job must have at least one option")
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
        reason = f"keeps only {job.busy_cores or 0.0:.2f} cores busy: no cores of its own, may use all {len(cores)}"
    else:
        index = _least(options)
        reason = f"no cores are left for this job alone: it may use all {len(cores)}; {why}"
    return CoreShare(name, index, options[index].configuration, tuple(sorted(cores)), False, reason)


def _least(options: Sequence[Option]) -> int:
    return min(range(len(options)), key=lambda index: (options[index].cores, -options[index].samples_per_s))


# --- hysteresis -------------------------------------------------------------------------------------------------------


def _with_hysteresis(
    jobs: Sequence[CoreRequest], proposed: Mapping[JobId, int], reason: str, capacity: Capacity
) -> tuple[Mapping[JobId, int], str]:
    """Returns the proposed choices, or the present ones if the gain is too small; and the reason."""
    now = {job.options.job: job.options.current for job in jobs if job.options.current is not None}
    if len(now) < len(jobs) or not _fit(jobs, now, capacity):
        return proposed, reason
    changed = [job.options for job in jobs if proposed.get(job.options.job) != now[job.options.job]]
    if not changed:
        return now, reason
    gain, saved_s = _gain(changed, now, proposed)
    told = f"a change gains {gain:.1%} speed and saves {saved_s:,.0f} s"
    if gain < LEAST_GAIN or saved_s < LEAST_SAVED_S:
        return now, f"unchanged: {told}; required are at least {LEAST_GAIN:.0%} and {LEAST_SAVED_S:.0f} s"
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
    """Returns the gain of the jobs that change, as a share of

        sum of weight / T^rho * speed / speed_least,   T = remaining samples / speed_least  (`allocation`)

    and the total seconds by which the jobs that become faster end sooner."""
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
    """Returns the numbers of each job's cores, sorted: its present cores up to its count, then the lowest free ones.
    own: present cores of each job. counts: number of cores of each job. Raises ValueError if the counts exceed the
    cores."""
    if sum(counts.values()) > len(cores):
        raise ValueError(f"the jobs need {sum(counts.values())} cores, but there are only {len(cores)}")
    kept, taken = dict[JobId, tuple[int, ...]](), set[int]()
    for job, count in counts.items():
        # if two jobs have the same core, the first one keeps it
        mine = tuple(core for core in sorted(own.get(job, ())) if core in cores and core not in taken)[:count]
        kept[job] = mine
        taken |= set(mine)
    free = iter(sorted(set(cores) - taken))
    return {
        job: tuple(sorted((*mine, *(next(free) for _ in range(counts[job] - len(mine)))))) for job, mine in kept.items()
    }
