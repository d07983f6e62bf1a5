"""What a policy looks at when it chooses who starts next, and what holds for all policies. Pure.

A job that runs alone this time (`exclusive`) is first in the queue: nothing else starts until the host is empty. Where
a job is paused memory was short: on its GPU nothing starts before it goes on, and if it is on the CPU, whose memory all
take from, nothing at all. A job that was evicted rests, unless nothing else runs. What would not fit an empty host
never holds up others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elastichost.tuner.colocation import speeds
from elastichost.tuner.colocation.candidates import Candidates, FreeMemory, candidates, fits, free_memory
from elastichost.tuner.colocation.corrections import Corrections, log_corrections
from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, PlacedJob, Start
from elastichost.tuner.colocation.ledger import Margins, mb_words
from elastichost.tuner.colocation.settings import ColocationSettings

__all__ = ["PlacementInput", "fastest_candidate", "placement_input", "predicted"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def predicted(
    running: Sequence[PlacedJob], host: HostCapacity, corrections: Corrections | None = None
) -> dict[str, float]:
    """Speed of each job that runs, as a share of its speed alone in its mode, by name; those that are paused are left
    out. Feedback compares what is measured with this, without corrections; a forecast has them."""
    computing = [one for one in running if not one.is_paused]
    found = speeds.speeds(speeds.demand_matrix(computing, len(host.gpus)))
    logs = log_corrections(corrections or Corrections(), [one.demand.kind for one in computing])
    together = speeds.corrected(found, logs).tolist()
    return {one.demand.job: speed for one, speed in zip(computing, together, strict=True)}


@dataclass(frozen=True)
class PlacementInput:
    """waits: which of the jobs of `candidates` still wait, bool [jobs]; possible: which could run on the empty host,
    bool [jobs]; arrived_s: float64 [jobs]; counts_jobs: the policy limits jobs by the cores if the settings do not say
    otherwise; decisions: starts so far, of this and earlier dispatches."""

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
        """What is free; of a GPU on which a job is paused nothing: that is what it waits for."""
        free = free_memory(self.host, self.running)
        held = [one.placement.device for one in self.running if one.is_paused and one.placement.device != CPU]
        gpus = free.gpus.copy()
        gpus[held] = 0.0
        return replace(free, gpus=gpus)

    @property
    def waited_s(self) -> Floats:
        """float64 [jobs]."""
        return np.maximum(0.0, self.now_s - self.arrived_s)

    @property
    def alone(self) -> int | None:
        """The job that is to run alone and is next; None: there is none."""
        return next((index for index in self.in_order() if self.candidates.jobs[index].exclusive), None)

    def in_order(self) -> list[int]:
        """Jobs that wait and could ever run, in order of arrival."""
        order = np.argsort(self.arrived_s, kind="stable")
        return [int(index) for index in order if self.waits[index] and self.possible[index]]

    def rests(self) -> Bools:
        """bool [jobs]."""
        if not self.running:
            return np.zeros(len(self.candidates.jobs), dtype=np.bool_)
        return np.array([job.not_before_s > self.now_s for job in self.candidates.jobs], dtype=np.bool_)

    def closed(self) -> str:
        """Why nothing at all starts, in words; empty: something may."""
        for one in self.running:
            if one.demand.exclusive:
                return f"{one.demand.job} runs alone: it ran out of memory beside others"
            if one.is_paused and (one.placement.device == CPU or not self.settings.memory_admission):
                return f"{one.demand.job} is paused and goes on first"
        most = self.settings.most(self.host, self.counts_jobs)
        return f"{len(self.running)} of at most {most} jobs run" if 0 < most <= len(self.running) else ""

    def fitting(self) -> Bools:
        """Candidates that have their memory now, bool [c]; all, where jobs are counted instead of bytes."""
        if self.settings.memory_admission:
            return fits(self.candidates, self.free)
        return np.ones(len(self.candidates), dtype=np.bool_)

    def open(self) -> Bools:
        """Candidates that memory and the rules for all policies admit, bool [c]. The job that is to run alone only when
        nothing runs; the others beside it as the policy has it."""
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
        """The candidate as a start; the reason is what the policy has to say, what it is charged is added."""
        job, free = self.candidates.jobs[self.candidates.job[way]], self.free
        charged, charged_gpu = int(self.candidates.charge[way]), int(self.candidates.charge_gpu[way])
        placement = self.candidates.placement(way)
        if free.is_empty:
            charged = min(charged, int(free.memory))
            if placement.device != CPU:
                charged_gpu = min(charged_gpu, int(free.gpus[placement.device]))
        placed = PlacedJob(job, placement, charged, charged_gpu, self.now_s)
        told = f"{reason}; charged {mb_words(charged)} of {mb_words(free.memory)} MB free"
        if placement.device != CPU:
            gpu = self.host.gpus[placement.device].index
            told += f", on GPU {gpu} {mb_words(charged_gpu)} of {mb_words(float(free.gpus[placement.device]))} MB"
        together = predicted((*self.running, placed), self.host, self.corrections)
        return Start(job.job, placement, charged, charged_gpu, told, together)

    def after(self, start: Start) -> PlacementInput:
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
    """Raises ValueError for two jobs of one name."""
    names = [job.job for job in waiting] + [one.demand.job for one in running]
    if len(set(names)) < len(names):
        raise ValueError("two jobs have one name")
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
    """Of these candidates the fastest alone; of equals the one on the GPU with most free memory. ways: bool [c], one at
    least."""
    free = np.append(inputs.free.gpus, 0.0)[inputs.candidates.device]
    chosen = np.flatnonzero(ways)
    order = np.lexsort((chosen, -free[chosen], -inputs.candidates.value[chosen]))
    return int(chosen[order[0]])
