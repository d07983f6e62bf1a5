"""Which configuration each of several jobs gets, so that together they fit and soon are done. Pure.

What a choice is worth, in both ways of choosing:

    value = weight / T^rho * (speed - speed_least) / speed_least,    T = remaining samples / speed_least

`least` is the job's cheapest option, which it gets in any case. This is how the rule of DLRover-RM is read here (PVLDB
17(12), 2024, auto-scaling across jobs): resource efficiency RE = throughput gain / resource cost, weighted so that jobs
with little left come first. The power of the remaining time is ours, and so are the prices: a resource costs what it
is worth to the jobs at hand (`knapsack.prices`).

Why this and not another objective: completion times fall fastest when the samples are trained that save most seconds
each, and those are a short job's, because what it gives back at its end helps all others. So values are linear in speed
and fall with T. In a fluid simulation (heavy-tailed jobs in bursts on 64 cores, load 0.5 to 1.1) rho from 0.5 to 1 and
the prices of heSRPT (Berg, Vesilo and Harchol-Balter 2020) end within 3 % of each other in mean completion time; with
the sum of log speeds it is 28 to 70 % longer, with the least sum of remaining times, which serves long jobs first, 90
to 210 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement import knapsack
from elastichost.tuner.placement.knapsack import Knapsack

__all__ = [
    "Allocation",
    "Capacity",
    "JobId",
    "JobOptions",
    "Option",
    "allocate",
    "exact",
    "total_value",
    "weighted_greedy",
]

RHO = 0.5  # how much jobs with little left are preferred: 0 not at all
STAY = 0.02  # what runs counts as so much faster than it is, so that nothing moves for less
MOST_ITEMS = 3000  # options that `allocate` searches for the best; more, and the greedy choice is within 0.1 % anyway
NODE_LIMIT = 10_000
JobId = int | str
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


class Option(msgspec.Struct, frozen=True):
    """A configuration that a job could have: its speed, and what all its processes need together."""

    configuration: Configuration
    samples_per_s: float
    cores: int
    memory_bytes: int = 0


class JobOptions(msgspec.Struct, frozen=True):
    """A job and what it may get. `current`: index of the option that runs; None: it waits. `weight`: twice as much
    counts as two such jobs."""

    job: JobId
    remaining_samples: float
    options: tuple[Option, ...]
    current: int | None = None
    weight: float = 1.0


class Capacity(msgspec.Struct, frozen=True):
    """To be shared by all jobs; 0: no limit."""

    cores: int
    memory_bytes: int = 0


class Allocation(msgspec.Struct, frozen=True):
    """`choices`: index of the option each job gets; a job that is not in it waits."""

    choices: Mapping[JobId, int]
    is_exact: bool
    reason: str


def weighted_greedy(jobs: Sequence[JobOptions], capacity: Capacity) -> dict[JobId, int]:
    """Index of the option each job gets; jobs that are not in the answer wait.

    First every job gets its least option, those that run before those that wait, while they fit. Then the upgrade with
    the most value per cost is made, again and again (`knapsack.greedy`). Raises ValueError for two jobs of one name and
    for options that are no options.
    """
    problem = _Problem.of(jobs, capacity)
    return problem.named(problem.greedy()) if problem.jobs else {}


def exact(
    jobs: Sequence[JobOptions], capacity: Capacity, time_limit_s: float = 0.5, node_limit: int = NODE_LIMIT
) -> dict[JobId, int]:
    """For the same jobs as `weighted_greedy` the most value that is possible, to `knapsack.GAP` of it: a knapsack of
    multiple choice with two resources, by `scipy.optimize.milp` (HiGHS). The greedy answer where that takes longer than
    the limits (that of time makes a decision depend on the machine, that of nodes does not). Raises as
    `weighted_greedy`."""
    problem = _Problem.of(jobs, capacity)
    if not problem.jobs:
        return {}
    known = problem.greedy()
    best = knapsack.exact(problem.items, known, problem.prices, len(problem.items.value), time_limit_s, node_limit)
    return problem.named(known if best is None else best)


def allocate(jobs: Sequence[JobOptions], capacity: Capacity, time_limit_s: float = 0.1) -> Allocation:
    """The exact answer where few options are left to search, else the greedy one; and what it is, in words. Raises as
    `weighted_greedy`."""
    problem = _Problem.of(jobs, capacity)
    best, choices = None, dict[JobId, int]()
    if problem.jobs:
        known = problem.greedy()
        best = knapsack.exact(problem.items, known, problem.prices, MOST_ITEMS, time_limit_s, NODE_LIMIT)
        choices = problem.named(known if best is None else best)
    cores = sum(job.options[choices[job.job]].cores for job in jobs if job.job in choices)
    running = [job for job in jobs if job.current is not None]
    kept = sum(choices.get(job.job) == job.current for job in running)
    reason = (
        f"{len(choices)} of {len(jobs)} jobs run, on {cores} of {capacity.cores or 'any number of'} cores; "
        f"{kept} of {len(running)} as before; {'greedy' if best is None else 'exact'}"
    )
    return Allocation(choices, best is not None, reason)


def total_value(jobs: Sequence[JobOptions], choices: Mapping[JobId, int]) -> float:
    """What `exact` has the most of: the sum of the values of the options chosen, whether they fit or not."""
    chosen = [job for job in jobs if job.job in choices]
    table = _Table.of(chosen)
    picked = table.starts + np.array([choices[job.job] for job in chosen], dtype=np.int64)
    return float(table.value[picked].sum()) if chosen else 0.0


# --- the problem in arrays --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """All options of all jobs, one after the other: float64 [n] each, their job int64 [n], each job's first int64 [g].
    least: its cheapest one (fewest cores, then least memory, then fastest), int64 [g]. urgency: weight / T^rho,
    float64 [g]."""

    starts: Whole
    group: Whole
    cores: Floats
    memory: Floats
    value: Floats
    least: Whole
    urgency: Floats

    @classmethod
    def of(cls, jobs: Sequence[JobOptions]) -> _Table:
        """Every job has an option."""
        options = [option for job in jobs for option in job.options]
        sizes = np.array([len(job.options) for job in jobs], dtype=np.int64)
        starts, group = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(jobs)), sizes)
        speed, cores, memory = (
            np.fromiter(map(attrgetter(name), options), dtype=np.float64, count=len(options))
            for name in ("samples_per_s", "cores", "memory_bytes")
        )
        for column in (speed, cores, memory):
            if not np.isfinite(column).all() or (column < 0).any():
                raise ValueError("speeds, cores and memory of options must be finite and not negative")
        least = np.lexsort((-speed, memory, cores, group))[starts]
        # a speed of 0 is no measure for the others
        reference = np.maximum(speed[least], 1e-3 * np.maximum.reduceat(speed, starts) if len(jobs) else 0.0)
        reference = np.maximum(reference, 1e-9)
        weight = np.array([job.weight for job in jobs], dtype=np.float64)
        left_s = np.array([job.remaining_samples for job in jobs], dtype=np.float64) / reference
        urgency = weight / np.maximum(left_s, 1.0) ** RHO
        running = [int(start) + job.current for start, job in zip(starts, jobs, strict=True) if job.current is not None]
        counted = speed.copy()
        counted[running] *= 1 + STAY
        # value = weight / T^rho * (speed - speed_least) / speed_least
        value = (urgency / reference)[group] * np.maximum(counted - speed[least][group], 0.0)
        return cls(starts, group, cores, memory, value, least, urgency)


@dataclass(frozen=True, slots=True)
class _Problem:
    """The jobs that get something, by name, so that the order in which they are told does not matter; their options as
    a knapsack; which item each begins with, int64 [g]; place of each item among its job's options, int64 [n]."""

    jobs: Sequence[JobOptions]
    items: Knapsack
    begin: Whole
    index: Whole
    order: Whole  # of groups, the most urgent first
    prices: Floats

    @classmethod
    def of(cls, jobs: Sequence[JobOptions], capacity: Capacity) -> _Problem:
        ordered = _checked(jobs)
        table = _Table.of(ordered)
        room = np.array([capacity.cores or np.inf, capacity.memory_bytes or np.inf], dtype=np.float64)
        need = np.stack([table.cores, table.memory])
        fits = np.all(need <= room[:, None], axis=0)
        begin = _admitted(
            table, need, fits, room, np.array([job.current is not None for job in ordered], dtype=np.bool_)
        )
        groups = np.flatnonzero(begin >= 0)
        kept = np.flatnonzero(fits & (begin >= 0)[table.group])
        whole = Knapsack(table.value[kept], need[:, kept], np.searchsorted(groups, table.group[kept]), room)
        possible = knapsack.possible(whole)
        kept = kept[possible]
        items = Knapsack(whole.value[possible], whole.need[:, possible], whole.group[possible], room)
        return cls(
            jobs=[ordered[group] for group in groups],
            items=items,
            begin=np.searchsorted(kept, begin[groups]),
            index=kept - table.starts[table.group[kept]],
            order=np.argsort(-table.urgency[groups], kind="stable"),
            prices=knapsack.prices(items) if len(groups) else np.zeros(2),
        )

    def greedy(self) -> Whole:
        return knapsack.greedy(self.items, self.begin, self.prices, self.order)

    def named(self, chosen: Whole) -> dict[JobId, int]:
        return {job.job: int(at) for job, at in zip(self.jobs, self.index[chosen], strict=True)}


def _checked(jobs: Sequence[JobOptions]) -> list[JobOptions]:
    """By name, without those that have no options."""
    if len({job.job for job in jobs}) < len(jobs):
        raise ValueError("two jobs have one name")
    for job in jobs:
        if not 0 <= job.weight < np.inf or not 0 <= (job.current or 0) < max(1, len(job.options)):
            raise ValueError(f"job {job.job}: weight {job.weight} or current option {job.current} cannot be")
    return sorted((job for job in jobs if job.options), key=lambda job: (str(type(job.job)), str(job.job)))


def _admitted(
    table: _Table, need: Floats, fits: npt.NDArray[np.bool_], room: Floats, is_running: npt.NDArray[np.bool_]
) -> Whole:
    """The item each job begins with, int64 [g]; -1: it waits. The least option for every job while they fit, those that
    run first, then by urgency for the share of the capacity it takes. Where it does not fit, the smallest that does."""
    share = (need / room[:, None]).sum(axis=0)
    turns = np.lexsort((-table.urgency / np.maximum(share[table.least], 1e-12), ~is_running))
    begin, left = np.full(len(table.starts), -1), room.copy()
    ends = np.append(table.starts, len(table.group))
    for group in turns.tolist():
        item = int(table.least[group])
        if not (need[:, item] <= left).all():
            own = np.arange(ends[group], ends[group + 1])
            own = own[fits[own] & (need[:, own] <= left[:, None]).all(axis=0)]
            if not len(own):
                continue
            item = int(own[np.argmin(share[own])])
        begin[group] = item
        left -= need[:, item]
    return begin
