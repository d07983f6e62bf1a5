"""Computes the figures from the records of runs: makespans, ratios by round, the bound, slowdowns. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import mean, median

import msgspec

from benchmarks.colocate.arms import ARMS, OURS, PARTS, RANDOMS, RMIXER, SHIPPED, TUNED, UNTRACKED
from benchmarks.colocate.jobs import KINDS
from benchmarks.colocate.quality import MemoryEstimates, Parity, memory_error, parity
from benchmarks.colocate.recorded import ArmRun, Cold, JobRun, Sweep
from benchmarks.harness.aggregates import Spread, spread_of
from benchmarks.harness.aims import Verdict, at_least, at_most
from elastichost.tuner.colocation.facts import RESOURCES, HostCapacity, JobDemand, Mode
from elastichost.tuner.colocation.speeds import Bound, bound

__all__ = [
    "DISTURBED",
    "ArmFigures",
    "Figures",
    "MixFigures",
    "bound_of",
    "figures_of",
    "headline",
    "least_work",
    "verdicts_of",
]


DISTURBED = 0.05  # a run counts as disturbed above this share of the cores in use by other processes


class ArmFigures(msgspec.Struct, frozen=True):
    """One arm of a mix over its rounds. samples_per_s: of all jobs together. speedup: over the arm "sequential
    shipped". ours_over: its makespan / the makespan of ours, in the same round. worst_slowdown: largest over jobs of
    (time from start to end) / (time alone). turnaround_s: mean over jobs of the time from the ready host to the end of
    the job. busy: CPU seconds of all jobs / (cores * makespan). ours_over_undisturbed: `ours_over` of the rounds in
    which other processes used little of the cores in both arms. foreign_share: share of the machine's cores that other
    processes used, in the worst round."""

    makespan_s: Spread
    samples_per_s: Spread
    speedup: Spread | None
    ours_over: Spread | None
    worst_slowdown: Spread | None
    turnaround_s: Spread
    busy: Spread
    out_of_memory: int
    foreign_share: float
    rounds: int
    ours_over_undisturbed: Spread | None = None


class MixFigures(msgspec.Struct, frozen=True):
    """One mix. bound: the speed-up over the arm "sequential shipped" that no schedule can exceed, with the jobs as they
    ran there, but with the `least_work` of any arm. bound_of_plans: the same, if each job may use the plan of either
    sequential arm. binding: the term that limits the bound. ours_over_*: the speed-up of ours / the bound, in the same
    round. parts: the gain that each part of ours adds. failures: by arm and round."""

    mix: str
    jobs: int
    arms: dict[str, ArmFigures]
    bound: Spread | None = None
    binding: str = ""
    ours_over_bound: Spread | None = None
    bound_of_plans: Spread | None = None
    ours_over_bound_of_plans: Spread | None = None
    ours_over_random: Spread | None = None
    parts: dict[str, Spread] = {}
    auc: Parity | None = None
    failures: dict[str, str] = {}


class Figures(msgspec.Struct, frozen=True):
    """All figures. memory: errors of estimates for all jobs that shared the host, in every arm. memory_of_ours: in arm
    "ours". alone_s: mean seconds of jobs of a kind alone, with imported libraries. cold_s: seconds of `run JOB` for one
    of them. plans: number of workers in the best static plan of each shape. commits: number of runs by commit."""

    mixes: dict[str, MixFigures]
    memory: MemoryEstimates
    memory_of_ours: MemoryEstimates
    alone_s: dict[str, float]
    cold_s: dict[str, float]
    plans: dict[str, int]
    commits: dict[str, int] = {}

    @property
    def out_of_memory(self) -> int:
        """The number of times that a job of ours ran out of memory."""
        return sum(mix.arms[OURS].out_of_memory for mix in self.mixes.values() if OURS in mix.arms)


def figures_of(runs: Sequence[ArmRun], sweeps: Mapping[str, Sweep], colds: Mapping[str, Cold]) -> Figures:
    """The figures of all runs. A failed run counts only in `failures`."""
    good = [run for run in runs if not run.failure]
    alone = {kind: _alone_s(good, kind) for kind in KINDS}
    return Figures(
        mixes={mix: _mix_figures(mix, [run for run in runs if run.mix == mix]) for mix in dict.fromkeys(_mixes(runs))},
        memory=memory_error(run for run in good if not _is_sequential(run)),
        memory_of_ours=memory_error(run for run in good if run.arm == OURS),
        alone_s={kind: seconds for kind, seconds in alone.items() if seconds is not None},
        cold_s={kind: one.seconds for kind, one in colds.items()},
        plans={shape: one.best for shape, one in sweeps.items() if one.seconds},
        commits=dict(Counter(run.commit for run in good if run.commit)),
    )


def _mixes(runs: Iterable[ArmRun]) -> list[str]:
    return [run.mix for run in runs]


def _is_sequential(run: ArmRun) -> bool:
    return ARMS[run.arm].is_sequential


def _alone_s(runs: Iterable[ArmRun], kind: str) -> float | None:
    seconds = [job.wall_s for run in runs if run.arm == SHIPPED for job in run.jobs if job.kind == kind]
    return mean(seconds) if seconds else None


# --- one mix ----------------------------------------------------------------------------------------------------------


def _mix_figures(mix: str, runs: Sequence[ArmRun]) -> MixFigures:
    by_arm: dict[str, dict[int, ArmRun]] = {
        name: {run.round: run for run in runs if run.arm == name and not run.failure} for name in ARMS
    }
    shipped, tuned, ours = by_arm[SHIPPED], by_arm[TUNED], by_arm[OURS]
    least = {number: least_work([found[number] for found in by_arm.values() if number in found]) for number in shipped}
    bounds = {number: bound_of(run, least[number]) for number, run in shipped.items()}
    of_plans = {n: bound_of(shipped[n], least[n], tuned[n]) for n in shipped.keys() & tuned.keys()}
    random = [value for name in RANDOMS for value in _quotients(by_arm[name], ours)]
    return MixFigures(
        mix=mix,
        jobs=max((len(run.jobs) for run in runs), default=0),
        arms={name: _arm_figures(found, shipped, ours) for name, found in by_arm.items() if found},
        bound=_spread(one.speedup for one in bounds.values()),
        binding=bounds[min(bounds)].binding.text() if bounds else "",
        ours_over_bound=_spread(_achieved(shipped, ours, bounds)),
        bound_of_plans=_spread(one.speedup for one in of_plans.values()),
        ours_over_bound_of_plans=_spread(_achieved(shipped, ours, of_plans)),
        ours_over_random=_spread(random),
        parts={
            after: found
            for before, after in pairwise(name for name in PARTS if by_arm[name])
            if (found := _spread(_quotients(by_arm[before], by_arm[after]))) is not None
        },
        auc=parity([(ours[number], shipped[number]) for number in sorted(ours.keys() & shipped.keys())]),
        failures={f"{run.arm}, round {run.round + 1}": run.failure for run in runs if run.failure},
    )


def _spread(values: Iterable[float]) -> Spread | None:
    found = list(values)
    return spread_of(found) if found else None


def _quotients(slow: Mapping[int, ArmRun], fast: Mapping[int, ArmRun]) -> list[float]:
    """Makespan of `slow` / makespan of `fast`, for each round that has both."""
    return [slow[number].makespan_s / fast[number].makespan_s for number in sorted(slow.keys() & fast.keys())]


def _achieved(shipped: Mapping[int, ArmRun], ours: Mapping[int, ArmRun], bounds: Mapping[int, Bound]) -> list[float]:
    rounds = sorted(shipped.keys() & ours.keys() & bounds.keys())
    return [shipped[n].makespan_s / ours[n].makespan_s / bounds[n].speedup for n in rounds]


def _arm_figures(runs: Mapping[int, ArmRun], shipped: Mapping[int, ArmRun], ours: Mapping[int, ArmRun]) -> ArmFigures:
    slowdowns = [_worst_slowdown(run, shipped[number]) for number, run in runs.items() if number in shipped]
    return ArmFigures(
        makespan_s=spread_of(run.makespan_s for run in runs.values()),
        samples_per_s=spread_of(run.samples_per_s for run in runs.values()),
        speedup=_spread(_quotients(shipped, runs)),
        ours_over=_spread(_quotients(runs, ours)),
        worst_slowdown=_spread(slowdowns),
        turnaround_s=spread_of(mean(job.ended_s for job in run.jobs) for run in runs.values()),
        busy=spread_of(sum(job.cpu_s for job in run.jobs) / run.cores / run.makespan_s for run in runs.values()),
        out_of_memory=sum(job.out_of_memory for run in runs.values() for job in run.jobs),
        foreign_share=max(run.foreign_share for run in runs.values()),
        rounds=len(runs),
        ours_over_undisturbed=_spread(_quotients(_undisturbed(runs), _undisturbed(ours))),
    )


def _undisturbed(runs: Mapping[int, ArmRun]) -> dict[int, ArmRun]:
    """The runs beside which other processes used little of the cores. The kernel divides cores among processes, so an
    arm with more of them takes more from the others: that is no gain of its policy."""
    return {number: run for number, run in runs.items() if run.foreign_share <= DISTURBED}


def _worst_slowdown(run: ArmRun, shipped: ArmRun) -> float:
    alone_s = {job.job: job.wall_s for job in shipped.jobs}
    return max(job.wall_s / alone_s[job.job] for job in run.jobs)


# --- the bound --------------------------------------------------------------------------------------------------------


def least_work(runs: Iterable[ArmRun]) -> dict[str, float]:
    """The CPU seconds of a job by shape (median over its jobs), in the arm where they are lowest.

    A job that waits for its input needs more CPU time alone than beside others, because each wait wakes a sleeping
    core. If its CPU time alone were taken as its work, arms that keep cores awake would exceed the bound."""
    found: dict[str, float] = {}
    for run in runs:
        for shape in {job.shape for job in run.jobs}:
            cpu_s = median(job.cpu_s for job in run.jobs if job.shape == shape)
            found[shape] = min(cpu_s, found.get(shape, cpu_s))
    return found


def bound_of(shipped: ArmRun, least: Mapping[str, float], tuned: ArmRun | None = None) -> Bound:
    """The bound computed from a sequential run: from the seconds of each job alone, its work relative to them and to
    the cores, and its peak of memory. least: work in CPU seconds by shape; for other shapes, the work in that run.
    tuned: a second sequential run; the jobs may use its plans too. Raises ValueError for a run without jobs."""
    plans = {job.job: job for job in tuned.jobs} if tuned is not None else {}
    demands = []
    for job in shipped.jobs:
        both = [one for one in (job, plans.get(job.job)) if one is not None]
        modes = [_mode(one, min(one.cpu_s, least.get(one.shape, one.cpu_s)), shipped.cores) for one in both]
        demands.append(JobDemand(job.job, job.kind, tuple(modes), float(max(1, job.samples))))
    return bound(demands, HostCapacity(shipped.cores, shipped.memory_bytes))


def _mode(job: JobRun, work_s: float, cores: int) -> Mode:
    busy = min(1.0, work_s / job.wall_s / cores)
    demand = (busy, *(0.0,) * (len(RESOURCES) - 1))
    return Mode(max(1, job.workers), 1, 1, max(1, job.samples) / job.wall_s, demand, job.peak_bytes)


# --- aims -------------------------------------------------------------------------------------------------------------


def _median(spread: Spread | None) -> float | None:
    return spread.median if spread is not None else None


def _over(mix: MixFigures, arm: str) -> float | None:
    return _median(mix.arms[arm].ours_over) if arm in mix.arms else None


def _over_in_every_round(mix: MixFigures, arm: str) -> float | None:
    over = mix.arms[arm].ours_over_undisturbed if arm in mix.arms else None
    return over.least if over is not None else None


def verdicts_of(figures: Figures) -> list[Verdict]:
    """The verdicts for the mixes that were measured."""
    found = []
    for name, one in figures.mixes.items():
        over = at_least(1.0, f"{name}: ours over {RMIXER} in every undisturbed round")
        found.append(over.judge(_over_in_every_round(one, RMIXER)))
    if (mix := figures.mixes.get("input_bound")) is not None:
        found.append(at_least(5.0, "input_bound: ours over sequential as shipped").judge(_over(mix, SHIPPED)))
        found.append(at_least(0.85, "input_bound: of the bound").judge(_median(mix.ours_over_bound)))
    if (mix := figures.mixes.get("balanced")) is not None:
        found.append(at_least(0.80, "balanced: of the bound").judge(_median(mix.ours_over_bound)))
    for name in ("dense_bound", "embedding_bound"):
        if (mix := figures.mixes.get(name)) is not None:
            found.append(at_least(0.97, f"{name}: ours over sequential tuned").judge(_over(mix, TUNED)))
    if (mix := figures.mixes.get("disk_bound")) is not None:
        gain = mix.arms[UNTRACKED].ours_over_undisturbed if UNTRACKED in mix.arms else None
        found.append(at_least(1.2, "disk_bound: ours over untracked, undisturbed rounds").judge(_median(gain)))
    found.append(at_most(0.0, "jobs of ours that ran out of memory").judge(figures.out_of_memory))
    found.append(at_most(0.15, "memory estimates: median error").judge(figures.memory.p50))
    found.append(at_most(0.10, "memory estimates: largest underestimate").judge(figures.memory.max_under))
    return found


def headline(figures: Figures) -> dict[str, object]:
    """The main figures for the JSON output: medians over rounds; None if not measured."""
    return {
        "mix": {name: _mix_headline(mix) for name, mix in figures.mixes.items()},
        "oom": figures.out_of_memory,
        "memory_error": {"p50": figures.memory.p50, "max_under": figures.memory.max_under},
        "cold_s": figures.cold_s,
        "alone_s": figures.alone_s,
        "plans": figures.plans,
    }


def _mix_headline(mix: MixFigures) -> dict[str, object]:
    spreads = {f"ours_over_{name}": one.ours_over for name, one in mix.arms.items() if name != OURS and one.ours_over}
    ours = mix.arms.get(OURS)
    return {
        "ours_over_sequential": _over(mix, SHIPPED),
        "ours_over_bound": _median(mix.ours_over_bound),
        "ours_over_rmixer_type": _over(mix, RMIXER),
        "ours_over_untracked": _over(mix, UNTRACKED),
        "ours_over_sequential_tuned": _over(mix, TUNED),
        "ours_over_fifo": _over(mix, "fifo"),
        "ours_over_random": _median(mix.ours_over_random),
        "ours_over_bound_of_plans": _median(mix.ours_over_bound_of_plans),
        "bound": _median(mix.bound),
        "binding": mix.binding,
        "jobs": mix.jobs,
        "rounds": ours.rounds if ours is not None else 0,
        "range": {name: (one.least, one.most) for name, one in spreads.items()},
        "parts": {name: one.median for name, one in mix.parts.items()},
        "makespan_s": {name: one.makespan_s.median for name, one in mix.arms.items()},
        "samples_per_s": {name: one.samples_per_s.median for name, one in mix.arms.items()},
        "worst_slowdown": _median(ours.worst_slowdown) if ours is not None else None,
        "mean_turnaround_s": _median(ours.turnaround_s) if ours is not None else None,
        "auc": msgspec.to_builtins(mix.auc),
        "oom": {name: one.out_of_memory for name, one in mix.arms.items()},
        "failures": mix.failures,
    }
