"""Chooses a configuration for each of several jobs: all fit together, and the mean completion time is short. Pure.

The greedy and the exact choice both maximise the sum of

    value = weight / T^rho * (speed - speed_least) / speed_least,    T = remaining samples / speed_least

speed: samples/s of the chosen option. speed_least: samples/s of the job's cheapest option, which it gets in any case.
T: seconds that the rest of the job takes with that option. weight: of the job. rho = RHO.

Source: the auto-scaling across jobs of DLRover-RM (PVLDB 17(12), 2024), which uses the resource efficiency RE =
throughput gain / resource cost, weighted so that jobs with little left come first. The power rho of the remaining time
is an addition of this project, and so are the prices: the cost of a resource is its worth to the present jobs
(`knapsack.prices`).

Reason for this objective: completion times fall fastest if the trained samples save most seconds each. These are the
samples of short jobs, because a job that ends returns its resources to all others. So values are linear in the speed
and fall with T. In a fluid simulation (heavy-tailed jobs in bursts on 64 cores, load 0.5 to 1.1), rho from 0.5 to 1 and
the prices of heSRPT (Berg, Vesilo and Harchol-Balter 2020) differ by at most 3 % in mean completion time. With the sum
of log speeds as objective it is 28 to 70 % longer; with the least sum of remaining times, which prefers long jobs, it
is 90 to 210 % longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, as_array
from elastichost.tuner.placement import knapsack
from elastichost.tuner.placement.knapsack import Knapsack

__all__ = [
    "Allocation",
    "Capacity",
    "JobId",
    "JobOptions",
    "Option",
    "OptionArray",
    "allocate",
    "exact",
    "total_value",
    "weighted_greedy",
]

RHO = 0.5  # preference of jobs with little left; 0: none
STAY = 0.02  # the running option counts as this share faster, so that a smaller gain changes nothing
MOST_ITEMS = 3000  # `allocate` searches exactly among up to this many options; for more, greedy is within 0.1 % anyway
NODE_LIMIT = 10_000
JobId = int | str
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


class Option(msgspec.Struct, frozen=True):
    """A configuration that a job could have: its speed, and the cores and memory of all its processes together."""

    configuration: Configuration
    samples_per_s: float
    cores: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class OptionArray:
    """The k options of a job as arrays, for many jobs. configurations: float64 [k, 4]. samples_per_s, cores,
    memory_bytes: float64 [k], as in `Option`."""

    configurations: ConfigurationArray
    samples_per_s: Floats
    cores: Floats
    memory_bytes: Floats

    @classmethod
    def of(cls, options: Sequence[Option]) -> OptionArray:
        columns = (
            np.fromiter(map(attrgetter(name), options), dtype=np.float64, count=len(options))
            for name in ("samples_per_s", "cores", "memory_bytes")
        )
        return cls(as_array([one.configuration for one in options]), *columns)

    def __len__(self) -> int:
        return len(self.cores)

    def place_of(self, configuration: Configuration) -> int | None:
        """The index of the first option with this configuration; None: there is none."""
        (row,) = as_array([configuration])
        found = np.flatnonzero((self.configurations == row).all(axis=1))
        return int(found[0]) if len(found) else None

    def __getitem__(self, index: int) -> Option:
        row = self.configurations[index].astype(np.int64).tolist()
        return Option(
            Configuration(*row), float(self.samples_per_s[index]), int(self.cores[index]), int(self.memory_bytes[index])
        )


class JobOptions(msgspec.Struct, frozen=True):
    """A job and its options. current: index of the running option; None: the job waits. weight: a job with weight 2
    counts like two jobs with weight 1."""

    job: JobId
    remaining_samples: float
    options: tuple[Option, ...] | OptionArray
    current: int | None = None
    weight: float = 1.0


class Capacity(msgspec.Struct, frozen=True):
    """The cores and the memory that all jobs share; 0: no limit."""

    cores: int
    memory_bytes: int = 0


class Allocation(msgspec.Struct, frozen=True):
    """The result of `allocate`. choices: job -> index of its option; jobs without an entry wait. is_exact: the choice
    is the best one, not the greedy one. core_price: value of one core to the present jobs."""

    choices: Mapping[JobId, int]
    is_exact: bool
    reason: str
    core_price: float = 0.0


def weighted_greedy(jobs: Sequence[JobOptions], capacity: Capacity) -> dict[JobId, int]:
    """Returns job -> index of its option, by a greedy choice; jobs without an entry wait.

    First each job gets its cheapest option as long as they fit, running jobs before waiting ones. Then the upgrade with
    the most value per cost is made repeatedly (`knapsack.greedy`). Raises ValueError for two jobs with the same name,
    and for invalid options.
    """
    problem = _Problem.of(jobs, capacity)
    return problem.named(problem.greedy()) if problem.jobs else {}


def exact(
    jobs: Sequence[JobOptions], capacity: Capacity, time_limit_s: float = 0.5, node_limit: int = NODE_LIMIT
) -> dict[JobId, int]:
    """Returns job -> index of its option with the largest total value, within `knapsack.GAP` of it.

    The jobs that run are the same as with `weighted_greedy`. The problem is a multiple-choice knapsack with two
    resources, solved by `scipy.optimize.milp` (HiGHS). If a limit is reached, the result is the greedy choice. (The
    time limit makes a decision depend on the machine; the node limit does not.) Raises as `weighted_greedy`."""
    problem = _Problem.of(jobs, capacity)
    if not problem.jobs:
        return {}
    known = problem.greedy()
    best = knapsack.exact(problem.items, known, problem.prices, len(problem.items.value), time_limit_s, node_limit)
    return problem.named(known if best is None else best)


def allocate(
    jobs: Sequence[JobOptions], capacity: Capacity, time_limit_s: float = 0.1, most_items: int = MOST_ITEMS
) -> Allocation:
    """Returns the exact choice if at most most_items options must be searched, else the greedy one, with its reason.
    Raises as `weighted_greedy`."""
    problem = _Problem.of(jobs, capacity)
    best, choices, cores = None, dict[JobId, int](), 0
    if problem.jobs:
        known = problem.greedy()
        best = knapsack.exact(problem.items, known, problem.prices, most_items, time_limit_s, NODE_LIMIT)
        chosen = known if best is None else best
        choices, cores = problem.named(chosen), int(problem.items.need[0, chosen].sum())
    running = [job for job in jobs if job.current is not None]
    kept = sum(choices.get(job.job) == job.current for job in running)
    reason = (
        f"{len(choices)} of {len(jobs)} jobs run on {cores} of {capacity.cores or 'unlimited'} cores; "
        f"{kept} of {len(running)} keep their size; {'greedy' if best is None else 'exact'} choice"
    )
    return Allocation(choices, best is not None, reason, float(problem.prices[0]))


def total_value(jobs: Sequence[JobOptions], choices: Mapping[JobId, int]) -> float:
    """The sum of the values of the chosen options, which `exact` maximises; the options need not fit."""
    chosen = [job for job in jobs if job.job in choices]
    table = _Table.of(chosen)
    picked = table.starts + np.array([choices[job.job] for job in chosen], dtype=np.int64)
    return float(table.value[picked].sum()) if chosen else 0.0


# --- the problem in arrays --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """The n options of all g jobs, one job after the other.

    cores, memory, value: float64 [n]. group: int64 [n], the job of each option. starts: int64 [g], the first option of
    each job. least: int64 [g], the cheapest option of each job (fewest cores, then least memory, then fastest).
    urgency: float64 [g], weight / T^rho."""

    starts: Whole
    group: Whole
    cores: Floats
    memory: Floats
    value: Floats
    least: Whole
    urgency: Floats

    @classmethod
    def of(cls, jobs: Sequence[JobOptions]) -> _Table:
        """Builds the table; every job must have an option."""
        options = [one if isinstance(one, OptionArray) else OptionArray.of(one) for one in (j.options for j in jobs)]
        sizes = np.array([len(one) for one in options], dtype=np.int64)
        starts, group = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(jobs)), sizes)
        speed, cores, memory = (
            np.concatenate([np.zeros(0), *map(attrgetter(name), options)])
            for name in ("samples_per_s", "cores", "memory_bytes")
        )
        for column in (speed, cores, memory):
            if not np.isfinite(column).all() or (column < 0).any():
                raise ValueError("speeds, cores and memory of options must be finite and at least 0")
        least = np.lexsort((-speed, memory, cores, group))[starts]
        # a speed of 0 cannot be the reference of the other speeds
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
    """The knapsack of the jobs that get an option, sorted by name so that the order of the input does not matter.

    items: their options. begin: int64 [g], the item that each job starts with. index: int64 [n], index of each item
    among the options of its job. prices: float64 [2], of cores and memory."""

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
    """The jobs with options, sorted by name. Raises ValueError for equal names, invalid weights and indices."""
    if len({job.job for job in jobs}) < len(jobs):
        raise ValueError("two jobs have the same name")
    for job in jobs:
        if not 0 <= job.weight < np.inf or not 0 <= (job.current or 0) < max(1, len(job.options)):
            raise ValueError(
                f"job {job.job}: weight={job.weight} must be at least 0, "
                f"current option {job.current} must be one of its {len(job.options)} options"
            )
    return sorted((job for job in jobs if len(job.options)), key=lambda job: (str(type(job.job)), str(job.job)))


def _admitted(
    table: _Table, need: Floats, fits: npt.NDArray[np.bool_], room: Floats, is_running: npt.NDArray[np.bool_]
) -> Whole:
    """The item that each job starts with, int64 [g]; -1: the job waits.

    Each job gets its cheapest option as long as they fit: running jobs first, then by urgency / share of the capacity.
    If the cheapest option does not fit, it gets the smallest option that fits."""
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
