"""Computes figures from simulated runs: means over seeds with 95 % bootstrap intervals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from benchmarks.colocate_simulated.plan import ARMS, OURS, SEQUENTIAL, Plan, Played
from benchmarks.harness.aggregates import Interval, bootstrap, ratio

__all__ = ["PUBLISHED", "ArmFigures", "Results", "Setting", "figures_of"]

# The largest gain of throughput that RMixer (TPDS 2024) reports, by number of GPUs, for its jobs on its machine
PUBLISHED = {1: 5.3, 4: 7.5}


class ArmFigures(msgspec.Struct, frozen=True):
    """Figures of one arm. speedup: makespan of `sequential` / its makespan, geometric mean over seeds. over_ours: its
    makespan / the makespan of the default policy. of_bound: share of the bound that is reached, for the bound of
    `speeds.bound` and for the tight bound of the linear program. worst_slowdown: largest over jobs of (time from first
    start to end) / (time alone). lost: share of work that was repeated. Kills, evictions and pauses are per batch."""

    runs: int
    makespan_s: Interval
    speedup: Interval | None
    over_ours: Interval | None
    most_speedup: float | None
    of_bound: Interval
    of_tight_bound: Interval
    turnaround_s: Interval
    worst_slowdown: Interval
    oom_kills: Interval
    evictions: Interval
    pauses: Interval
    completed: float
    lost: float


class Setting(msgspec.Struct, frozen=True):
    """One part on one host. bound, tight_bound: speed-ups over `sequential` that no schedule exceeds, geometric means
    over seeds. binding: how often each term of `speeds.bound` was the limiting one."""

    part: str
    gpus: int
    jobs: int
    bound: float | None
    tight_bound: float | None
    binding: dict[str, int]
    published: float
    arms: dict[str, ArmFigures]


class Results(msgspec.Struct, frozen=True):
    """All results. simulated: always True, because nothing was measured. seeds: the seeds of the figures."""

    simulated: bool
    plan: Plan
    seeds: tuple[int, ...]
    settings: tuple[Setting, ...]
    seconds: float
    code: str


def figures_of(played: Sequence[Played]) -> tuple[Setting, ...]:
    """The figures by part and host, in order. The ratios of an arm leave out seeds that it lacks."""
    keys = dict.fromkeys((one.task.part, one.task.gpus, one.task.jobs) for one in played)
    return tuple(_setting(*key, played) for key in keys)


def _setting(part: str, gpus: int, jobs: int, played: Sequence[Played]) -> Setting:
    mine = [one for one in played if (one.task.part, one.task.gpus, one.task.jobs) == (part, gpus, jobs)]
    by_arm = {name: {one.task.seed: one for one in mine if one.task.arm == name} for name in ARMS}
    batches = list({one.task.seed: one for one in mine}.values())
    binding: dict[str, int] = {}
    for one in batches:
        binding[one.binding] = binding.get(one.binding, 0) + 1
    return Setting(
        part=part,
        gpus=gpus,
        jobs=jobs,
        bound=_bound([one.makespan_s / one.bound_s for one in by_arm[SEQUENTIAL].values()]),
        tight_bound=_bound([one.makespan_s / one.tight_s for one in by_arm[SEQUENTIAL].values()]),
        binding=binding,
        published=PUBLISHED[gpus],
        arms={name: _arm(runs, by_arm[SEQUENTIAL], by_arm[OURS]) for name, runs in by_arm.items() if runs},
    )


def _bound(speedups: Sequence[float]) -> float | None:
    return float(np.exp(np.log(speedups).mean())) if speedups else None


def _arm(runs: dict[int, Played], sequential: dict[int, Played], ours: dict[int, Played]) -> ArmFigures:
    def spread(value: Callable[[Played], float]) -> Interval:
        return bootstrap(np.array([value(one) for one in runs.values()], dtype=np.float64))

    speedups = _quotients(sequential, runs)
    return ArmFigures(
        runs=len(runs),
        makespan_s=spread(lambda one: one.makespan_s),
        speedup=_paired(sequential, runs),
        over_ours=_paired(runs, ours),
        most_speedup=max(speedups, default=None),
        of_bound=spread(lambda one: one.bound_s / one.makespan_s),
        of_tight_bound=spread(lambda one: one.tight_s / one.makespan_s),
        turnaround_s=spread(lambda one: one.turnaround_s),
        worst_slowdown=spread(lambda one: one.worst_slowdown),
        oom_kills=spread(lambda one: float(one.oom_kills)),
        evictions=spread(lambda one: float(one.evictions)),
        pauses=spread(lambda one: float(one.pauses)),
        completed=float(np.mean([one.completed for one in runs.values()])),
        lost=float(np.mean([one.lost for one in runs.values()])),
    )


def _quotients(above: dict[int, Played], below: dict[int, Played]) -> list[float]:
    """Quotients of makespans, one for each seed that both have."""
    return [above[seed].makespan_s / below[seed].makespan_s for seed in sorted(above.keys() & below.keys())]


def _paired(above: dict[int, Played], below: dict[int, Played]) -> Interval | None:
    found = np.array(_quotients(above, below))
    return ratio(found, np.ones_like(found)) if len(found) else None
