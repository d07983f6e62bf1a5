"""The outcome of every job of a simulation, and of the cluster. Pure values."""

from __future__ import annotations

from typing import Literal

import msgspec

from benchmarks.simulator.cluster.episodes import Episode, MemoryRaise
from benchmarks.simulator.cluster.job_run import JobRun
from elastichost.tuner.facts import Configuration

__all__ = ["JobOutcome", "SimulationResult", "outcome_of"]


class JobOutcome(msgspec.Struct, frozen=True):
    """The outcome of one job. outcome "unfinished": the simulation ended before the job. core_s, used_core_s,
    memory_byte_s, used_byte_s: integrals over its life.

    work: trained samples, including samples that were trained again. replaced_right: replaced workers that were
    stragglers. moved_right: moves of buckets for a job with a hot PS. episodes: stragglers and hot PS in the order of
    their ends. raises: increases of its memory while it ran, in the order in which they were judged."""

    job: int
    family: str
    outcome: Literal["completed", "died", "unfinished"]
    arrived_s: float
    started_s: float | None
    ended_s: float
    waited_s: float
    samples: int
    work: float
    rolled_back: float
    first: Configuration | None
    final: Configuration | None
    changes: int
    restarts: int
    ooms: int
    core_s: float
    used_core_s: float
    memory_byte_s: float
    used_byte_s: float
    hot_s: float
    straggle_s: float
    replaced_right: int
    replaced_wrong: int
    moved_right: int
    moved_wrong: int
    episodes: tuple[Episode, ...] = ()
    raises: tuple[MemoryRaise, ...] = ()

    @property
    def completion_s(self) -> float:
        """Job completion time in seconds, including the wait."""
        return self.ended_s - self.arrived_s


class SimulationResult(msgspec.Struct, frozen=True):
    """The result of a simulation. busy_share: share of the cores that was allocated, from the first to the last
    arrival. refused: grants that did not fit, or that came while the job was being changed."""

    policy: str
    jobs: tuple[JobOutcome, ...]
    events: int
    decisions: int
    refused: int
    ended_s: float
    busy_share: float


def outcome_of(run: JobRun, now_s: float) -> JobOutcome:
    """The outcome of a job at the end of the simulation."""
    spec = run.spec
    return JobOutcome(
        job=spec.job,
        family=spec.features.family,
        outcome=run.outcome or "unfinished",
        arrived_s=spec.arrived_s,
        started_s=run.started_s,
        ended_s=now_s if run.ended_s is None else run.ended_s,
        waited_s=run.waited_s,
        samples=spec.samples,
        work=run.work,
        rolled_back=run.rolled_back,
        first=run.first,
        final=run.final,
        changes=run.changes,
        restarts=run.restarts,
        ooms=run.ooms,
        core_s=run.core_s,
        used_core_s=run.used_core_s,
        memory_byte_s=run.memory_byte_s,
        used_byte_s=run.used_byte_s,
        hot_s=run.hot_s,
        straggle_s=run.straggle_s,
        replaced_right=run.replaced_right,
        replaced_wrong=run.replaced_wrong,
        moved_right=run.moved_right,
        moved_wrong=run.moved_wrong,
        episodes=tuple(run.episodes.over),
        raises=tuple(run.episodes.raises),
    )
