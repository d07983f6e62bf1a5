"""Policies compared on thousands of simulated jobs: completion times, memory, utilisation, what goes wrong.

`python -m benchmarks.tuner.simulated [--quick] [--json]`. All policies get the same jobs, hosts, noise and failures
(paired seeds). Jobs come so densely that the well-tuned manual policy has about `--load` of all cores from the first
arrival to the last; how many each policy had is printed. Confidence intervals are 95 % bootstraps over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from elastichost.simulator import tables as truth_tables
from elastichost.simulator.cluster import Host
from elastichost.simulator.engine import simulate_jobs
from elastichost.simulator.jobs import JobSpec, Mix, draw_jobs, spread_out
from elastichost.simulator.outcome import JobOutcome, SimulationResult
from elastichost.simulator.policies.common import candidates
from elastichost.simulator.policies.registry import POLICIES, make_policy
from elastichost.simulator.policies.static import best_configuration
from elastichost.simulator.settings import SEAMLESS, STOP_AND_RESTART, Settings
from elastichost.simulator.views import ClusterView, Grant, Policy

__all__ = ["Figures", "Plan", "Results", "Spread", "bootstrap", "figures_of", "loaded_jobs", "main", "run"]

RIVALS = ("static", "elastic_scheduler", "optimus")  # whose best the paper compares itself with
STOPPING = ("static", "tuned", "optimus", "pollux")  # that stop and restart jobs in the systems they come from
RESAMPLES = 4000
WARM_UP, FEW = 2, 200  # jobs
LOAD_ROUNDS, LOAD_TOLERANCE = 6, 0.03
GIB = 2**30
WIDTH = 160  # of what is printed into files


class Plan(msgspec.Struct, frozen=True):
    """What is simulated. load: share of all cores that the well-tuned policy has while jobs arrive.

    moving: "same": every policy moves as this runtime does; "own": those of STOPPING stop and restart, as in their
    papers."""

    policies: tuple[str, ...] = tuple(POLICIES)
    seeds: int = 20
    jobs: int = 100
    hosts: int = 16
    load: float = 0.7
    moving: str = "same"
    mix: Mix = Mix()
    first_seed: int = 1

    def settings(self, policy: str) -> Settings:
        style = STOP_AND_RESTART if self.moving == "own" and policy in STOPPING else SEAMLESS
        return Settings(hosts=(Host(64, 256 * GIB),) * self.hosts, style=style)


class Figures(msgspec.Struct, frozen=True):
    """Of one policy and seed. Completion times are of the jobs that all policies complete; shares are 0 to 1."""

    completion_mean_s: float
    completion_p95_s: float
    completed: float  # jobs, of all
    waited_mean_s: float
    cpu_used: float  # of the cores allocated
    memory_used: float  # of the memory granted
    allocated: float  # cores, of all, from the first arrival to the last
    oom_kills: float  # per job
    changes: float  # per job
    hot: float  # of the time that jobs run
    straggling: float
    replaced_right: float  # of the workers replaced; 1.0 when none was
    moved_right: float
    start_workers: float  # smaller over larger of the first and the last number, mean over completed jobs
    start_servers: float
    refused: float  # grants per job
    decision_p99_s: float  # CPU time
    decisions: int
    events: int
    events_per_s: float  # and second of CPU time outside the policy


class Spread(msgspec.Struct, frozen=True):
    """Mean over seeds, and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def shown(self, form: str) -> str:
        return f"{self.mean:{form}} ({self.low:{form}}-{self.high:{form}})"


class Results(msgspec.Struct, frozen=True):
    """figures, by policy, one for each seed. ratios: mean completion time of a policy over that of another, by pair, as
    geometric means over seeds. seconds: of the whole benchmark."""

    plan: Plan
    figures: dict[str, tuple[Figures, ...]]
    spreads: dict[str, dict[str, Spread]]
    ratios: dict[str, dict[str, Spread]]
    best_rival: str
    decisions_by_size: dict[str, dict[str, float]]
    seconds: float


# --- one simulation ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Timed:
    """A policy, and the CPU time of each of its decisions."""

    policy: Policy
    seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        began_s = time.process_time()
        grants = self.policy.decide(view, now_s)
        self.seconds.append(time.process_time() - began_s)
        return grants


def loaded_jobs(plan: Plan, seed: int) -> tuple[JobSpec, ...]:
    """A seed's jobs, arriving so densely that the well-tuned policy has about `load` of all cores allocated between the
    first arrival and the last: first by the core-seconds it needs, then by what it was seen to have. Few jobs in bursts
    do not reach every load; then it is the nearest that was found."""
    settings = plan.settings("tuned")
    jobs = draw_jobs(seed, plan.jobs, plan.mix, truth_tables.tables(), settings.limits)
    array = candidates(settings.limits)
    core_s = 0.0
    for job in jobs:
        configuration = best_configuration(job, array, job.share_cores)
        core_s += configuration.cores * job.samples / job.truth.speed(configuration).samples_per_s
    cores = sum(host.cores for host in settings.hosts)
    jobs = spread_out(jobs, core_s / (plan.load * cores) / max(1e-9, jobs[-1].arrived_s))
    best, best_share = jobs, 0.0
    for _ in range(LOAD_ROUNDS):
        share = simulate_jobs(jobs, make_policy("tuned", jobs, seed), settings, seed).busy_share
        if abs(share - plan.load) < abs(best_share - plan.load):
            best, best_share = jobs, share
        if abs(share - plan.load) <= LOAD_TOLERANCE:
            break
        jobs = spread_out(jobs, max(share, 0.1) / plan.load)
    return best


def _simulated(
    plan: Plan, name: str, jobs: Sequence[JobSpec], seed: int
) -> tuple[SimulationResult, Sequence[float], float]:
    policy = Timed(make_policy(name, jobs, seed))
    began_s = time.process_time()
    found = simulate_jobs(jobs, policy, plan.settings(name), seed)
    return found, policy.seconds, time.process_time() - began_s


def figures_of(
    result: SimulationResult, decisions_s: Sequence[float], wall_s: float, common: frozenset[int]
) -> Figures:
    """common: jobs whose completion times count."""
    jobs = result.jobs
    done = [job for job in jobs if job.outcome == "completed"]
    times_s = np.array([job.completion_s for job in done if job.job in common] or [np.nan])
    started = [job for job in jobs if job.started_s is not None]
    running_s = sum(job.ended_s - job.arrived_s - job.waited_s for job in started)
    engine_s = max(1e-9, wall_s - sum(decisions_s))

    def total(value: Callable[[JobOutcome], float]) -> float:
        return float(sum(value(job) for job in jobs))

    return Figures(
        completion_mean_s=float(times_s.mean()),
        completion_p95_s=float(np.quantile(times_s, 0.95)),
        completed=len(done) / len(jobs),
        waited_mean_s=total(lambda job: job.waited_s) / len(jobs),
        cpu_used=_share(total(lambda job: job.used_core_s), total(lambda job: job.core_s)),
        memory_used=_share(total(lambda job: job.used_byte_s), total(lambda job: job.memory_byte_s)),
        allocated=result.busy_share,
        oom_kills=total(lambda job: job.ooms) / len(jobs),
        changes=total(lambda job: job.changes) / len(jobs),
        hot=_share(total(lambda job: job.hot_s), running_s),
        straggling=_share(total(lambda job: job.straggle_s), running_s),
        replaced_right=_share(
            total(lambda job: job.replaced_right), total(lambda job: job.replaced_right + job.replaced_wrong), 1.0
        ),
        moved_right=_share(
            total(lambda job: job.moved_right), total(lambda job: job.moved_right + job.moved_wrong), 1.0
        ),
        start_workers=_nearness(done, "workers"),
        start_servers=_nearness(done, "servers"),
        refused=result.refused / len(jobs),
        decision_p99_s=float(np.quantile(decisions_s, 0.99)) if decisions_s else 0.0,
        decisions=result.decisions,
        events=result.events,
        events_per_s=result.events / engine_s,
    )


def _share(part: float, whole: float, otherwise: float = 0.0) -> float:
    return part / whole if whole > 0 else otherwise


def _nearness(done: Sequence[JobOutcome], name: str) -> float:
    pairs = [(getattr(job.first, name), getattr(job.final, name)) for job in done if job.first and job.final]
    return sum(min(pair) / max(pair) for pair in pairs) / len(pairs) if pairs else 1.0


# --- all of them ------------------------------------------------------------------------------------------------------


def run(plan: Plan, sizes: Sequence[int] = (), told: Callable[[str], None] = lambda text: None) -> Results:
    """Every policy on every seed. sizes: jobs at once whose decisions are timed beside. told: hears what was done."""
    began_s = time.perf_counter()
    figures: dict[str, list[Figures]] = {name: [] for name in plan.policies}
    for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
        jobs = loaded_jobs(plan, seed)
        found = {name: _simulated(plan, name, jobs, seed) for name in plan.policies}
        completed = [{job.job for job in result.jobs if job.outcome == "completed"} for result, _, _ in found.values()]
        common = frozenset(set[int].intersection(*completed))
        for name, (result, decisions_s, wall_s) in found.items():
            figures[name].append(figures_of(result, decisions_s, wall_s, common))
        told(f"seed {seed}: all complete {len(common)} of {len(jobs)} jobs; {time.perf_counter() - began_s:.0f} s")
    by_size = {name: decision_times(plan, name, sizes) for name in plan.policies} if sizes else {}
    means = {name: np.array([one.completion_mean_s for one in rows]) for name, rows in figures.items()}
    rivals = [name for name in RIVALS if name in means] or list(means)
    return Results(
        plan=plan,
        figures={name: tuple(rows) for name, rows in figures.items()},
        spreads={name: _spreads(rows) for name, rows in figures.items()},
        ratios={one: {other: _ratio(means[one], means[other]) for other in means} for one in means},
        best_rival=min(rivals, key=lambda name: float(means[name].mean())),
        decisions_by_size=by_size,
        seconds=time.perf_counter() - began_s,
    )


def _spreads(rows: Sequence[Figures]) -> dict[str, Spread]:
    names = Figures.__struct_fields__
    return {name: bootstrap(np.array([getattr(row, name) for row in rows], dtype=np.float64)) for name in names}


def _ratio(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> Spread:
    spread = bootstrap(np.log(one / other))
    return Spread(*(float(np.exp(value)) for value in msgspec.structs.astuple(spread)))


def bootstrap(values: npt.NDArray[np.float64], resamples: int = RESAMPLES, seed: int = 0) -> Spread:
    """The mean and its 95 % percentile interval over resamples of the values, which are one for each seed."""
    picks = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    means = values[picks].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Spread(float(values.mean()), float(low), float(high))


def decision_times(plan: Plan, name: str, sizes: Sequence[int]) -> dict[str, float]:
    """p99 of the CPU time of a decision with so many jobs, all there from the start, on a cluster that grows with them.
    A first run, which imports what is imported late, does not count."""
    found = {}
    for size in (WARM_UP, *sizes):
        sized = msgspec.structs.replace(plan, jobs=size, hosts=size)
        settings = sized.settings(name)
        drawn = draw_jobs(plan.first_seed, size, plan.mix, truth_tables.tables(), settings.limits)
        jobs = spread_out(drawn, 0.0)
        policy = Timed(make_policy(name, jobs, plan.first_seed))
        watched_s = 1800.0 if size <= FEW else 300.0
        simulate_jobs(jobs, policy, msgspec.structs.replace(settings, drain_s=watched_s), plan.first_seed)
        found[str(size)] = float(np.quantile(policy.seconds, 0.99))
    del found[str(WARM_UP)]
    return found


# --- showing ----------------------------------------------------------------------------------------------------------

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("mean JCT, s", "completion_mean_s", ",.0f"),
    ("P95 JCT, s", "completion_p95_s", ",.0f"),
    ("completed", "completed", ".3f"),
    ("waited, s", "waited_mean_s", ",.0f"),
    ("CPU used", "cpu_used", ".2f"),
    ("memory used", "memory_used", ".2f"),
    ("allocated", "allocated", ".2f"),
)
MORE: tuple[tuple[str, str, str], ...] = (
    ("OOM kills/job", "oom_kills", ".2f"),
    ("changes/job", "changes", ".1f"),
    ("hot", "hot", ".3f"),
    ("straggling", "straggling", ".3f"),
    ("replaced right", "replaced_right", ".2f"),
    ("moved right", "moved_right", ".2f"),
    ("start: workers", "start_workers", ".2f"),
    ("start: PS", "start_servers", ".2f"),
    ("decision p99, ms", "decision_p99_s", ".1f"),
    ("events/s", "events_per_s", ",.0f"),
)


def _table(title: str, results: Results, columns: Sequence[tuple[str, str, str]], *, with_interval: bool) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("policy")
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    for name, spreads in results.spreads.items():
        cells = []
        for _, field_name, form in columns:
            spread = spreads[field_name]
            if field_name.endswith("p99_s"):
                spread = Spread(*(1e3 * value for value in msgspec.structs.astuple(spread)))
            cells.append(spread.shown(form) if with_interval else f"{spread.mean:{form}}")
        table.add_row(name, *cells)
    return table


def show(results: Results, console: Console) -> None:
    plan = results.plan
    console.print(
        f"{plan.seeds} seeds x {plan.jobs} jobs on {plan.hosts} hosts of 64 cores and 256 GiB, {plan.load:.0%} of "
        f"them the well-tuned policy's while jobs arrive; moving: {plan.moving}; {results.seconds:.0f} s",
        soft_wrap=True,
    )
    console.print(_table("Jobs and resources: mean over seeds (95 %)", results, COLUMNS, with_interval=True))
    console.print(_table("What goes wrong, and what deciding takes", results, MORE, with_interval=False))
    others = [name for name in ("oracle", "tuned", results.best_rival) if name in results.ratios]
    table = Table(title="Mean JCT over that of another, paired by seed (95 %)", title_justify="left")
    table.add_column("policy")
    for other in others:
        table.add_column(f"over {other}" + (" (best rival)" if other == results.best_rival else ""), justify="right")
    for name, ratios in results.ratios.items():
        table.add_row(name, *(ratios[other].shown(".2f") for other in others))
    console.print(table)
    if results.decisions_by_size:
        sizes = list(next(iter(results.decisions_by_size.values())))
        table = Table(title="p99 of a decision, ms, by jobs", title_justify="left")
        table.add_column("policy")
        for size in sizes:
            table.add_column(size, justify="right")
        for name, row in results.decisions_by_size.items():
            table.add_row(name, *(f"{1e3 * row[size]:,.1f}" for size in sizes))
        console.print(table)


# --- the command ------------------------------------------------------------------------------------------------------

QUICK = {"seeds": 2, "jobs": 9, "hosts": 3}


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """HiGHS prints a line of its own now and then, past Python: meanwhile what is written to stdout goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def make_tables(path: Path, told: Callable[[str], None]) -> None:
    """Simulates the truth tables anew: minutes."""
    rows = {}
    for scenario in truth_tables.CLUSTER_SCENARIOS:
        rows[scenario.name] = np.stack(list(truth_tables.tabulate(scenario)))
        told(f"{scenario.name}: {len(rows[scenario.name])} points")
    with path.open("wb") as stream:
        truth_tables.write_tables(stream, rows)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuner.simulated", description=__doc__)
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=None, help="of each seed")
    parser.add_argument("--hosts", type=int, default=None)
    parser.add_argument("--load", type=float, default=Plan().load)
    parser.add_argument(
        "--moving", choices=("same", "own"), default="same", help="own: stop and restart as in the papers"
    )
    parser.add_argument("--sizes", default="", help="time decisions with so many jobs, such as 8,100,4000")
    parser.add_argument("--quick", action="store_true", help="seconds instead of many minutes")
    parser.add_argument("--json", action="store_true", help="results as one JSON object on stdout")
    parser.add_argument("--tabulate", action="store_true", help="simulate the truth tables anew, and do nothing else")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parsed(arguments)
    console = Console(stderr=True, width=None if sys.stdout.isatty() else WIDTH)

    def told(text: str) -> None:
        console.print(f"[dim]{text}[/]", soft_wrap=True)

    if chosen.tabulate:
        make_tables(Path(truth_tables.__file__).with_name(truth_tables.FILE), told)
        return
    asked = {name: getattr(chosen, name) for name in QUICK if getattr(chosen, name) is not None}
    plan = Plan(
        policies=tuple(chosen.policies.split(",")),
        load=chosen.load,
        moving=chosen.moving,
        **{**(QUICK if chosen.quick else {}), **asked},
    )
    with only_results_on_stdout():
        results = run(plan, [int(size) for size in chosen.sizes.split(",") if size], told)
    if chosen.json:
        print(json.dumps({"benchmark": "tuner-simulated", "results": msgspec.to_builtins(results)}))
    else:
        show(results, Console(width=None if sys.stdout.isatty() else WIDTH))


if __name__ == "__main__":
    main()
