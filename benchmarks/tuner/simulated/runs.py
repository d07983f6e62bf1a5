"""Simulates a plan seed by seed, in one process or several, with the same results in the same order."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import msgspec
import numpy as np

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import SimulatedJob, draw_jobs, spread_out
from benchmarks.simulator.cluster.outcome import SimulationResult
from benchmarks.simulator.cluster.views import (
    ClusterView,
    Grant,
    InformedPolicy,
    JobFaults,
    ObservingPolicy,
    Policy,
)
from benchmarks.simulator.policies.oracle import URGENCIES, OraclePolicy
from benchmarks.simulator.queueing import truth_tables
from benchmarks.tuner.simulated.conditions.requests import RequestKind, requested
from benchmarks.tuner.simulated.plan import BLIND, KNOWING, Plan, loaded_jobs, make_arm

__all__ = ["Played", "PlayedKinds", "Seeds", "Timed", "decision_times", "play", "play_all", "timed", "timed_decisions"]

WARM_UP, FEW, MANY = 2, 200, 2000  # jobs


@dataclass(slots=True)
class Timed:
    """Wraps a policy and records the CPU time of each of its decisions, without that of the tuners of single jobs."""

    policy: Policy
    seconds: list[float] = field(default_factory=list)
    observed_s: float = 0.0  # CPU time of the tuners of single jobs
    most_jobs: int = 0  # of one decision
    _observing: ObservingPolicy | None = None

    def __post_init__(self) -> None:
        self._observing = self.policy if isinstance(self.policy, ObservingPolicy) else None

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self.most_jobs = max(self.most_jobs, len(view.jobs))
        if self._observing is not None:
            tuple(view.jobs)  # its views are made by the simulator, and not at the expense of the policy
            began_s = time.process_time()
            self._observing.observe(view, now_s)
            self.observed_s += time.process_time() - began_s
        gc.freeze()  # of the tuners' objects a live dispatcher has none, so its collector does not look at them
        began_s = time.process_time()
        grants = self.policy.decide(view, now_s)
        self.seconds.append(time.process_time() - began_s)
        gc.unfreeze()
        return grants


@dataclass(slots=True)
class _TimedInformed(Timed):
    """The same for a policy that gets the true faults, which costs time for each decision."""

    def hear(self, ailing: Mapping[int, JobFaults]) -> None:
        assert isinstance(self.policy, InformedPolicy)
        self.policy.hear(ailing)


def timed(policy: Policy) -> Timed:
    """Wraps a policy; the wrapper hears the true faults only if the policy does."""
    return _TimedInformed(policy) if isinstance(policy, InformedPolicy) else Timed(policy)


class Played(msgspec.Struct, frozen=True):
    """One simulation. start_speed: for each completed job, true speed of its first configuration / true speed of its
    last. cpu_s: of the whole simulation, including decisions, without the tuners of single jobs."""

    result: SimulationResult
    decisions_s: tuple[float, ...]
    start_speed: dict[int, float]
    cpu_s: float


Seeds = Sequence[Mapping[str, Played]]  # one simulation of each policy, by name, for each seed
PlayedKinds = Mapping[RequestKind, Mapping[str, Played]]  # by kind of requests and name, of one seed


def play(plan: Plan, seed: int) -> PlayedKinds:
    """Simulates every policy of the plan on the jobs of one seed, with each kind of requests."""
    jobs, limits = loaded_jobs(plan, seed), plan.settings("tuned").limits
    once = {name: _simulated(plan, name, jobs, seed) for name in plan.policies if name in BLIND}
    found: dict[RequestKind, Mapping[str, Played]] = {}
    for kind in plan.requests:
        asking = requested(jobs, kind, limits)
        found[kind] = {
            name: once[name] if name in once else _simulated(plan, name, asking, seed) for name in plan.policies
        }
    return found


def _simulated(plan: Plan, name: str, jobs: Sequence[SimulatedJob], seed: int) -> Played:
    return _best_known(plan, jobs, seed) if name == KNOWING else _played(plan, name, jobs, seed)


def _played(plan: Plan, name: str, jobs: Sequence[SimulatedJob], seed: int, policy: Policy | None = None) -> Played:
    watched = timed(policy or make_arm(name, jobs, seed))
    began_s = time.process_time()
    found = simulate_jobs(jobs, watched, plan.settings(name), seed)
    took_s = time.process_time() - began_s - watched.observed_s
    truths = {job.job: job.truth for job in jobs}
    start_speed = {
        one.job: truths[one.job].speed(one.first).samples_per_s / truths[one.job].speed(one.final).samples_per_s
        for one in found.jobs
        if one.outcome == "completed" and one.first is not None and one.final is not None
    }
    return Played(found, tuple(watched.seconds), start_speed, took_s)


def _best_known(plan: Plan, jobs: Sequence[SimulatedJob], seed: int) -> Played:
    """The best of several oracles on these jobs, chosen with hindsight, so that the bound depends on no single rule."""
    known = {job.job: job for job in jobs}
    found = [_played(plan, KNOWING, jobs, seed, OraclePolicy(known, urgency)) for urgency in URGENCIES]
    return min(found, key=_mean_completion_s)


def _mean_completion_s(played: Played) -> float:
    return float(np.mean([one.completion_s for one in played.result.jobs]))


# --- all of them ------------------------------------------------------------------------------------------------------


def play_all(
    plans: Sequence[Plan], processes: int = 1, told: Callable[[str], None] = lambda text: None
) -> list[list[PlayedKinds]]:
    """Simulates all plans; returns the simulations by plan and seed. told: is called with lines of progress."""
    tasks = [
        (place, plan, seed)
        for place, plan in enumerate(plans)
        for seed in range(plan.first_seed, plan.first_seed + plan.seeds)
    ]
    began_s = time.perf_counter()
    found: list[list[PlayedKinds]] = [[] for _ in plans]
    for (place, _, seed), kinds in zip(tasks, _in_order(tasks, processes), strict=True):
        found[place].append(kinds)
        so_far_s = time.perf_counter() - began_s
        for kind, one in kinds.items():
            means = ", ".join(f"{name} {_mean_completion_s(played):,.0f}" for name, played in one.items())
            told(
                f"plan {place + 1} of {len(plans)}, seed {seed}, {kind} requests, after {so_far_s:.0f} s; mean "
                f"completion times, s: {means}"
            )
    return found


def _in_order(tasks: Sequence[tuple[int, Plan, int]], processes: int) -> Iterator[PlayedKinds]:
    plans, seeds = [plan for _, plan, _ in tasks], [seed for _, _, seed in tasks]
    if processes < 2:
        yield from map(play, plans, seeds)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(play, plans, seeds)


def decision_times(plan: Plan, name: str, sizes: Sequence[int]) -> dict[str, float]:
    """The p99 of the CPU time of a decision for each number of jobs, as in `timed_decisions`."""
    timed_decisions(plan, name, WARM_UP)
    return {str(size): float(np.quantile(timed_decisions(plan, name, size).seconds, 0.99)) for size in sizes}


def timed_decisions(plan: Plan, name: str, size: int) -> Timed:
    """The decisions about `size` jobs, which all arrive at the start, on a cluster that grows with them. They are
    watched for a while only: the tuners of the single jobs take some sixty times as long as the decisions. MANY jobs
    are watched until each of them was measured and has more than one option. The first run in a process triggers late
    imports."""
    sized = msgspec.structs.replace(plan, jobs=size, hosts=size)
    settings = sized.settings(name)
    drawn = draw_jobs(plan.first_seed, size, plan.mix, truth_tables.tables(), settings.limits)
    jobs = spread_out(drawn, 0.0)
    policy = timed(make_arm(name, jobs, plan.first_seed))
    watched_s = 1800.0 if size <= FEW else 300.0 if size < MANY else 100.0
    simulate_jobs(jobs, policy, msgspec.structs.replace(settings, drain_s=watched_s), plan.first_seed)
    return policy
