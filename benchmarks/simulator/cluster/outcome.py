"""What became of every job of a simulation, and of the cluster. Pure values."""

from __future__ import annotations

from typing import Literal

import msgspec

from benchmarks.simulator.cluster.episodes import Episode, MemoryRaise
from benchmarks.simulator.cluster.job_run import JobRun
from elastichost.tuner.facts import Configuration

__all__ = ["JobOutcome", "SimulationResult", "outcome_of"]


class JobOutcome(msgspec.Struct, frozen=True):
    """outcome "unfinished": the simulation was over before it. Seconds of cores and bytes: integrals over its life.

    work: samples trained, those that were trained again included. replaced_right: workers that were replaced and were
    stragglers; moved_right: buckets moved of a job that had a hot PS. episodes: stragglers and hot PS, in the order in
    which they were over; raises: of the memory it was granted while it ran, in the order in which they were judged."""

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
        """Job completion time, waiting included."""
        return self.ended_s - self.arrived_s


class SimulationResult(msgspec.Struct, frozen=True):
    """busy_share: cores that were allocated, of those there were, from the first arrival to the last. refused: grants
    that did not fit, or came while a job was changing."""

    policy: str
    jobs: tuple[JobOutcome, ...]
    events: int
    decisions: int
    refused: int
    ended_s: float
    busy_share: float


def outcome_of(run: JobRun, now_s: float) -> JobOutcome:
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
