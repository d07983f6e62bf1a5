"""The input of a policy that chooses the next start, and the rules of all policies. Pure.

Rules:
- A job that must run alone (`exclusive`) is first in the queue; how others may run before it depends on the policy.
- A job is paused because memory was short. If it is on a GPU, no job starts on that GPU before it resumes. If it is on
  the CPU, no job starts at all, because all jobs use the memory of the host.
- An evicted job rests until `not_before_s`, unless no other job runs.
- A job that does not fit an empty host never delays others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elastichost.human_readable import mib
from elastichost.tuner.colocation import speeds
from elastichost.tuner.colocation.candidates import Candidates, FreeMemory, candidates, fits, free_memory
from elastichost.tuner.colocation.corrections import Corrections, log_corrections
from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, PlacedJob, Start
from elastichost.tuner.colocation.ledger import Margins
from elastichost.tuner.colocation.settings import ColocationSettings

__all__ = ["PlacementInput", "fastest_candidate", "placement_input", "predicted"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def predicted(
    running: Sequence[PlacedJob], host: HostCapacity, corrections: Corrections | None = None
) -> dict[str, float]:
    """Returns job -> predicted speed of each running job, as a share of its speed alone in its mode; paused jobs are
    left out. Feedback compares measurements with this prediction without corrections; forecasts include corrections."""
    computing = [one for one in running if not one.is_paused]
    found = speeds.speeds(speeds.demand_matrix(computing, len(host.gpus)))
    logs = log_corrections(corrections or Corrections(), [one.demand.kind for one in computing])
    together = speeds.corrected(found, logs).tolist()
    return {one.demand.job: speed for one, speed in zip(computing, together, strict=True)}


@dataclass(frozen=True)
class PlacementInput:
    """The input of a policy.

    waits: bool [jobs], jobs of `candidates` that still wait. possible: bool [jobs], jobs that fit the empty host.
    arrived_s: float64 [jobs]. counts_jobs: the number of jobs is limited to the cores, unless the settings have another
    limit. decisions: number of starts so far, of this and of earlier dispatches."""

    candidates: Candidates
    waits: Bools
    possible: Bools
    arrived_s: Floats
    running: tuple[PlacedJob, ...]
    host: HostCapacity
    settings: ColocationSettings
    corrections: Corrections
    now_s: float
    counts_jobs: bool
    decisions: int

    @property
    def free(self) -> FreeMemory:
        """The free memory. A GPU with a paused job has none, because that job waits for it."""
        free = free_memory(self.host, self.running)
        held = [one.placement.device for one in self.running if one.is_paused and one.placement.device != CPU]
        gpus = free.gpus.copy()
        gpus[held] = 0.0
        return replace(free, gpus=gpus)

    @property
    def waited_s(self) -> Floats:
        """Seconds since the arrival of each job, float64 [jobs]."""
        return np.maximum(0.0, self.now_s - self.arrived_s)

    @property
    def alone(self) -> int | None:
        """The index of the next job that must run alone; None: there is none."""
        return next((index for index in self.in_order() if self.candidates.jobs[index].exclusive), None)

    def in_order(self) -> list[int]:
        """The waiting jobs that fit an empty host, in order of arrival."""
        order = np.argsort(self.arrived_s, kind="stable")
        return [int(index) for index in order if self.waits[index] and self.possible[index]]

    def rests(self) -> Bools:
        """Which jobs rest after an eviction, bool [jobs]; none if no job runs."""
        if not self.running:
            return np.zeros(len(self.candidates.jobs), dtype=np.bool_)
        return np.array([job.not_before_s > self.now_s for job in self.candidates.jobs], dtype=np.bool_)

    def closed(self) -> str:
        """The reason for which no job may start; empty: jobs may start."""
        for one in self.running:
            if one.demand.exclusive:
                return f"{one.demand.job} runs alone, because it ran out of memory beside others"
            if one.is_paused and (one.placement.device == CPU or not self.settings.memory_admission):
                return f"{one.demand.job} is paused and resumes first"
        most = self.settings.most(self.host, self.counts_jobs)
        return f"{len(self.running)} of at most {most} jobs run" if 0 < most <= len(self.running) else ""

    def fitting(self) -> Bools:
        """Candidates whose memory is free, bool [c]; all candidates if jobs are counted instead of bytes."""
        if self.settings.memory_admission:
            return fits(self.candidates, self.free)
        return np.ones(len(self.candidates), dtype=np.bool_)

    def open(self) -> Bools:
        """Candidates that memory and the rules of all policies admit, bool [c]. A job that must run alone is a
        candidate only when no job runs; then other jobs are not. While jobs run, the policy decides about the
        others."""
        if self.closed():
            return np.zeros(len(self.candidates), dtype=np.bool_)
        of_job = self.waits & self.possible & ~self.rests()
        alone = np.array([job.exclusive for job in self.candidates.jobs], dtype=np.bool_)
        if self.running:
            of_job &= ~alone
        elif (alone & of_job).any():
            of_job &= alone
        return self.fitting() & of_job[self.candidates.job]

    def start(self, way: int, reason: str) -> Start:
        """Makes a start of a candidate. reason: that of the policy; the charges are appended to it."""
        job, free = self.candidates.jobs[self.candidates.job[way]], self.free
        charged, charged_gpu = int(self.candidates.charge[way]), int(self.candidates.charge_gpu[way])
        placement = self.candidates.placement(way)
        if free.is_empty:
            charged = min(charged, int(free.memory))
            if placement.device != CPU:
                charged_gpu = min(charged_gpu, int(free.gpus[placement.device]))
        placed = PlacedJob(job, placement, charged, charged_gpu, self.now_s)
        told = f"{reason}; it is charged {mib(charged)} of {mib(free.memory)} free"
        if placement.device != CPU:
            gpu = self.host.gpus[placement.device].index
            free_bytes = float(free.gpus[placement.device])
            told += f", on GPU {gpu} {mib(charged_gpu)} of {mib(free_bytes)} free"
        together = predicted((*self.running, placed), self.host, self.corrections)
        return Start(job.job, placement, charged, charged_gpu, told, together)

    def after(self, start: Start) -> PlacementInput:
        """The input after this start: the job runs and no longer waits."""
        index = next(at for at in np.flatnonzero(self.waits) if self.candidates.jobs[at].job == start.job)
        waits = self.waits.copy()
        waits[index] = False
        demand = self.candidates.jobs[index]
        placed = PlacedJob(demand, start.placement, start.charged_bytes, start.charged_gpu_bytes, self.now_s)
        return replace(self, waits=waits, running=(*self.running, placed), decisions=self.decisions + 1)


def placement_input(
    waiting: Sequence[JobDemand],
    running: Sequence[PlacedJob],
    host: HostCapacity,
    settings: ColocationSettings,
    corrections: Corrections,
    now_s: float,
    margins: Margins,
    decisions: int,
) -> PlacementInput:
    """Builds the input of a policy. Raises ValueError for two jobs with the same name."""
    names = [job.job for job in waiting] + [one.demand.job for one in running]
    if len(set(names)) < len(names):
        raise ValueError("two jobs have the same name")
    policy = settings.policy
    ways = candidates(waiting, host, margins, settings.rmixer_margin if policy == "rmixer_type" else 0.0)
    empty = FreeMemory(host.memory_bytes, np.array([gpu.memory_bytes for gpu in host.gpus], dtype=np.float64), True)
    possible = np.zeros(len(waiting), dtype=np.bool_)
    possible[ways.job[fits(ways, empty) | (not settings.memory_admission)]] = True
    return PlacementInput(
        candidates=ways,
        waits=np.ones(len(waiting), dtype=np.bool_),
        possible=possible,
        arrived_s=np.array([job.arrived_s for job in waiting], dtype=np.float64),
        running=tuple(running),
        host=host,
        settings=settings,
        corrections=corrections if settings.feedback else Corrections(),
        now_s=now_s,
        counts_jobs=policy in ("fifo", "random") or not settings.memory_admission,
        decisions=decisions,
    )


def fastest_candidate(inputs: PlacementInput, ways: Bools) -> int:
    """Index of the candidate that is fastest alone; of equal ones, the one on the GPU with most free memory. ways: bool
    [c], the candidates to choose from, at least one."""
    free = np.append(inputs.free.gpus, 0.0)[inputs.candidates.device]
    chosen = np.flatnonzero(ways)
    order = np.lexsort((chosen, -free[chosen], -inputs.candidates.value[chosen]))
    return int(chosen[order[0]])
