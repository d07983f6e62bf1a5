"""Figures of simulated policies: completion times, use of resources, faults. Means over seeds with 95 % bootstrap
intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.aggregates import Interval, bootstrap
from benchmarks.simulator.cluster.outcome import JobOutcome
from benchmarks.tuner.simulated.runs import Played

__all__ = [
    "Figures",
    "completion_s",
    "figures_of",
    "figures_of_seed",
    "spreads",
]

Floats = npt.NDArray[np.float64]


class Figures(msgspec.Struct, frozen=True):
    """Figures of one policy and seed. Completion times are of jobs that all policies complete. Shares are 0 to 1."""

    completion_mean_s: float
    completion_p95_s: float
    completed: float  # share of jobs
    waited_mean_s: float
    cpu_used: float  # share of the allocated cores
    memory_used: float  # share of the granted memory
    allocated: float  # share of all cores, from the first arrival to the last
    oom_kills: float  # per job
    changes: float  # per job
    hot: float  # share of the time in which jobs run
    straggling: float
    replaced_right: float  # share of the replaced workers; 1.0 if none was replaced
    moved_right: float
    start_workers: float  # smaller / larger of the first and the last number, mean over completed jobs
    start_servers: float
    refused: float  # grants per job
    decision_p99_s: float  # CPU time
    decisions: int
    events: int
    events_per_s: float  # per second of CPU time outside the policy


# --- of one seed ------------------------------------------------------------------------------------------------------


def figures_of_seed(played: Mapping[str, Played]) -> dict[str, Figures]:
    """The figures by policy. Completion times are of the jobs that all policies complete."""
    completed = [{job.job for job in one.result.jobs if job.outcome == "completed"} for one in played.values()]
    common = frozenset(set[int].intersection(*completed))
    return {name: figures_of(one, common) for name, one in played.items()}


def figures_of(played: Played, common: frozenset[int]) -> Figures:
    """The figures of one simulation. common: the jobs that count for completion times."""
    result, decisions_s = played.result, played.decisions_s
    jobs = result.jobs
    done = [job for job in jobs if job.outcome == "completed"]
    times_s = completion_s(jobs, common)
    started = [job for job in jobs if job.started_s is not None]
    running_s = sum(job.ended_s - job.arrived_s - job.waited_s for job in started)
    engine_s = max(1e-9, played.cpu_s - sum(decisions_s))

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


def completion_s(jobs: Sequence[JobOutcome], chosen: frozenset[int]) -> Floats:
    """The completion times of the completed jobs among `chosen`, float64 [n]; [nan] if there are none."""
    times = [job.completion_s for job in jobs if job.outcome == "completed" and job.job in chosen]
    return np.array(times or [np.nan])


def _share(part: float, whole: float, otherwise: float = 0.0) -> float:
    return part / whole if whole > 0 else otherwise


def _nearness(done: Sequence[JobOutcome], name: str) -> float:
    pairs = [(getattr(job.first, name), getattr(job.final, name)) for job in done if job.first and job.final]
    return sum(min(pair) / max(pair) for pair in pairs) / len(pairs) if pairs else 1.0


# --- over seeds -------------------------------------------------------------------------------------------------------


def spreads(rows: Sequence[Figures]) -> dict[str, Interval]:
    """The mean and interval over seeds, by field."""
    names = Figures.__struct_fields__
    return {name: bootstrap(np.array([getattr(row, name) for row in rows], dtype=np.float64)) for name in names}
