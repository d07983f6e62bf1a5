"""From simulated runs to figures: means over seeds, with 95 % bootstrap intervals; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from benchmarks.colocate_simulated.plan import ARMS, OURS, SEQUENTIAL, Plan, Played
from benchmarks.harness.aggregates import Interval, bootstrap, ratio

__all__ = ["PUBLISHED", "ArmFigures", "Results", "Setting", "figures_of"]

# RMixer (TPDS 2024), of throughput, by number of GPUs: the most it reports, of its jobs on its machine
PUBLISHED = {1: 5.3, 4: 7.5}


class ArmFigures(msgspec.Struct, frozen=True):
    """Of one arm. speedup: makespan of `sequential` over its own, geometric mean over seeds; over_ours: its makespan
    over that of the default policy. of_bound: share of the bound that is reached, by `speeds.bound` and, tight, by the
    linear program. worst_slowdown: of any job, from its first start to its end over its time alone. lost: work that was
    done again, of all. Kills, evictions and pauses are per batch."""

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
    over seeds. binding: of `speeds.bound`, how often each term was the bound."""

    part: str
    gpus: int
    jobs: int
    bound: float | None
    tight_bound: float | None
    binding: dict[str, int]
    published: float
    arms: dict[str, ArmFigures]


class Results(msgspec.Struct, frozen=True):
    """simulated: always: nothing here was measured. seeds: that the figures are of."""

    simulated: bool
    plan: Plan
    seeds: tuple[int, ...]
    settings: tuple[Setting, ...]
    seconds: float
    code: str


def figures_of(played: Sequence[Played]) -> tuple[Setting, ...]:
    """By part and host, in the order in which they come; seeds that an arm lacks are left out of its ratios."""
    keys = dict.fromkeys((one.task.part, one.task.gpus, one.task.jobs) for one in played)
    return tuple(_setting(*key, played) for key in keys)


def _setting(part: str, gpus: int, jobs: int, played: Sequence[Played]) -> Setting:
    mine = [one for one in played if (one.task.part, one.task.gpus, one.task.jobs) == (part, gpus, jobs)]
    by_arm = {name: {one.task.seed: one for one in mine if one.task.arm == name} for name in ARMS}
    batches = list({one.task.seed: one for one in mine}.values())
    binding: dict[str, int] = {}
    for one in batches:
        name = _term(one.binding)
        binding[name] = binding.get(name, 0) + 1
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


def _term(binding: str) -> str:
    """Without names and numbers."""
    return "the longest job" if binding.startswith("the longest job") else binding.partition(":")[0]


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
    """Of makespans, by seed."""
    return [above[seed].makespan_s / below[seed].makespan_s for seed in sorted(above.keys() & below.keys())]


def _paired(above: dict[int, Played], below: dict[int, Played]) -> Interval | None:
    found = np.array(_quotients(above, below))
    return ratio(found, np.ones_like(found)) if len(found) else None
