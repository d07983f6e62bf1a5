"""Simulated co-location: the parts and arms, and one run of an arm."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import linprog

from benchmarks.simulator.colocation import simulation as simulator
from benchmarks.simulator.colocation.beliefs import true_demand
from benchmarks.simulator.colocation.interference import InterferenceModel
from benchmarks.simulator.colocation.jobs import SITES, JobBatch, MixName, SimulatedHost, draw_batch
from benchmarks.simulator.colocation.simulation import BatchOutcome, simulate_batch
from elastichost.tuner import colocation as policies
from elastichost.tuner.colocation.facts import HOST_RESOURCES, RESOURCES, HostCapacity, JobDemand
from elastichost.tuner.colocation.settings import ColocationSettings
from elastichost.tuner.colocation.speeds import bound, seconds_left

__all__ = [
    "ALONE",
    "ARMS",
    "FIRST_SEED",
    "OURS",
    "PARTS",
    "SEQUENTIAL",
    "Arm",
    "Part",
    "Plan",
    "Played",
    "Task",
    "batch_of",
    "code_digest",
    "play",
    "tasks_of",
    "tightest_s",
]

# The constants of the simulation and of the policies were chosen on seeds 1 to 8, so figures use later seeds.
FIRST_SEED = 101
SEQUENTIAL, OURS, ALONE = "sequential", "complementary", "one job a GPU"
ONE_A_GPU = -1  # stands for as many jobs as there are GPUs


@dataclass(frozen=True)
class Arm:
    """One arm. settings: of the policy. doubt: factor on the initial error of the policy's facts about jobs."""

    settings: ColocationSettings
    about: str
    doubt: float = 1.0


def _arm(about: str, doubt: float = 1.0, **settings: object) -> Arm:
    return Arm(msgspec.convert(settings, ColocationSettings), about, doubt)


ARMS: dict[str, Arm] = {
    SEQUENTIAL: _arm("one after another, each in its fastest mode", policy="exclusive"),
    ALONE: _arm("in order of arrival, as many jobs as GPUs", policy="fifo", most_jobs=ONE_A_GPU, feedback=False),
    "fifo": _arm("in order of arrival, as many jobs as cores", policy="fifo"),
    "random": _arm("any job that fits", policy="random"),
    "rmixer_type": _arm("RMixer's rule", policy="rmixer_type"),
    "rmixer_type, no feedback": _arm("RMixer's rule only", policy="rmixer_type", feedback=False),
    OURS: _arm("the job that adds most to the total speed"),
    "without complementarity": _arm("any job that fits, in order of arrival", complementarity=False),
    "without memory admission": _arm("counts jobs, not bytes", memory_admission=False),
    "without feedback": _arm("no corrections from measured pairs, no evictions", feedback=False),
    "demands known": _arm("speeds and shares are known from the start", 0.0),
}
CORE = (SEQUENTIAL, "rmixer_type", OURS)


class Part(msgspec.Struct, frozen=True):
    """A part of the simulation. jobs: number of jobs in a batch, by number of GPUs."""

    name: str
    mix: MixName
    arms: tuple[str, ...]
    has_mps: bool = False
    jobs: tuple[tuple[int, int], ...] = ((1, 20), (4, 32))


PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        Part("input_bound", "input_bound", tuple(ARMS)),
        Part("balanced", "balanced", (*CORE, "without feedback")),
        Part("input_bound_mps", "input_bound", (*CORE, "without feedback"), has_mps=True),
    )
}


class Plan(msgspec.Struct, frozen=True):
    """The runs to make. parts: names. scale: factor on the number of jobs. gpus: numbers of GPUs of the hosts."""

    parts: tuple[str, ...] = tuple(PARTS)
    seeds: int = 20
    first_seed: int = FIRST_SEED
    scale: float = 1.0
    gpus: tuple[int, ...] = (1, 4)
    arms: tuple[str, ...] = tuple(ARMS)


class Task(msgspec.Struct, frozen=True):
    """One run."""

    part: str
    gpus: int
    arm: str
    seed: int
    jobs: int

    @property
    def name(self) -> str:
        return f"{self.part}.{self.gpus}gpu.{self.arm.replace(',', '').replace(' ', '_')}.{self.jobs}jobs.{self.seed}"


class Played(msgspec.Struct, frozen=True):
    """The result of one run. bound_s: lower bound of the seconds of any schedule by `speeds.bound`; tight_s: by the
    linear program (`tightest_s`). sequential_s: of all jobs alone, one after another, without starts. lost: share of
    work that was repeated. cpu_s: of the simulation."""

    task: Task
    makespan_s: float
    turnaround_s: float
    worst_slowdown: float
    oom_kills: int
    completed: float
    evictions: int
    pauses: int
    starts: int
    lost: float
    sequential_s: float
    bound_s: float
    binding: str
    tight_s: float
    cpu_s: float


def tasks_of(plan: Plan) -> Iterator[Task]:
    """The runs of a plan ordered by seed, so that an interrupted plan still has paired runs."""
    for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
        for part in (PARTS[name] for name in plan.parts):
            for gpus, jobs in part.jobs:
                for arm in part.arms:
                    # with one GPU, one job per GPU is the same as one job at a time
                    if gpus in plan.gpus and arm in plan.arms and not (arm == ALONE and gpus == 1):
                        yield Task(part.name, gpus, arm, seed, max(4, round(plan.scale * jobs)))


def site_of(task: Task) -> SimulatedHost:
    """The host of a task."""
    return msgspec.structs.replace(SITES[task.gpus], has_mps=PARTS[task.part].has_mps)


def batch_of(task: Task) -> JobBatch:
    """The batch of a task; it is the same for every arm."""
    return draw_batch(task.seed, PARTS[task.part].mix, site_of(task), task.jobs)


def play(task: Task) -> Played:
    """Simulates a task. The same task gives the same figures, except `cpu_s`."""
    begin_s = time.process_time()
    batch, arm = batch_of(task), ARMS[task.arm]
    settings = msgspec.structs.replace(arm.settings, seed=task.seed)
    if settings.most_jobs == ONE_A_GPU:
        settings = msgspec.structs.replace(settings, most_jobs=task.gpus)
    found = simulate_batch(batch, settings, doubt=arm.doubt)
    return _played(task, batch, found, time.process_time() - begin_s)


def _played(task: Task, batch: JobBatch, found: BatchOutcome, cpu_s: float) -> Played:
    truth = InterferenceModel(batch.site)
    demands = [true_demand(one.job, one.family, truth, one.lasts_s) for one in batch.jobs]
    fastest = [max(range(len(one.modes)), key=lambda at: one.modes[at].samples_per_s) for one in demands]
    known = bound(demands, batch.site.room, fastest)
    work = sum(job.work for job in found.jobs)
    return Played(
        task=task,
        makespan_s=found.makespan_s,
        turnaround_s=sum(job.ended_s for job in found.jobs) / len(found.jobs),
        worst_slowdown=max(job.slowdown for job in found.jobs),
        oom_kills=sum(job.oom_kills for job in found.jobs),
        completed=sum(job.outcome == "done" for job in found.jobs) / len(found.jobs),
        evictions=sum(job.evictions for job in found.jobs),
        pauses=sum(job.pauses for job in found.jobs),
        starts=sum(job.starts for job in found.jobs),
        lost=sum(job.lost for job in found.jobs) / work if work > 0 else 0.0,
        sequential_s=known.sequential_s,
        bound_s=known.least_s,
        binding=known.binding.name,
        tight_s=tightest_s(demands, batch.site.room),
        cpu_s=cpu_s,
    )


def tightest_s(jobs: list[JobDemand], room: HostCapacity) -> float:
    """A lower bound of the seconds of any schedule, for any choice of modes, by a linear program. With y[j, m] the
    share of job j that is done in mode m, which takes t[j, m] alone,

        minimise T    subject to   sum over m of y[j, m] = 1,    sum over m of y[j, m] t[j, m] <= T    for every job,
                                   sum over j, m of y[j, m] t[j, m] D[j, m, r] <= T * capacity of r    for resources,

    including memory. `speeds.bound` takes the minimum over modes separately for each term, so that a job with a choice
    between cores and a GPU seems to need neither. This program does not have that error. It even lets jobs change their
    mode."""
    gpus = len(room.gpus)
    rows, capacity = _terms(room)
    columns = [(job, at) for job, demand in enumerate(jobs) for at in range(len(demand.modes))]
    alone = np.array([seconds_left(jobs[job], jobs[job].modes[at]) for job, at in columns])
    uses = np.zeros((rows + len(jobs), len(columns) + 1))
    once = np.zeros((len(jobs), len(columns) + 1))
    for place, (job, at) in enumerate(columns):
        mode = jobs[job].modes[at]
        uses[:rows, place] = (*mode.demand, mode.memory_bytes / 1e9, mode.gpu_memory_bytes / 1e9)
        uses[:rows, place] *= alone[place]
        uses[rows + job, place] = alone[place]
        once[job, place] = 1.0
    uses[:rows, -1], uses[rows:, -1] = -np.array(capacity), -1.0
    if not gpus:
        uses = uses[[row for row in range(len(uses)) if row >= rows or capacity[row] > 0]]
    least = np.zeros(len(columns) + 1)
    least[-1] = 1.0
    found = linprog(least, A_ub=uses, b_ub=np.zeros(len(uses)), A_eq=once, b_eq=np.ones(len(jobs)), method="highs")
    if not found.success:
        raise ValueError(f"the linear program has no solution: {found.message}")
    return float(found.fun)


def _terms(room: HostCapacity) -> tuple[int, list[float]]:
    """The number of resources including memory, and the capacity of each, over all GPUs together."""
    gpus = len(room.gpus)
    capacity = [1.0 if at < len(HOST_RESOURCES) else float(gpus) for at in range(len(RESOURCES))]
    capacity += [room.memory_bytes / 1e9, sum(gpu.memory_bytes for gpu in room.gpus) / 1e9]
    return len(capacity), capacity


@cache
def code_digest() -> str:
    """A digest of the code of the simulation and the policies. Kept runs of other code are not reused."""
    folders = (Path(simulator.__file__).parent, Path(policies.__file__).parent)
    files = (*sorted(folders[0].glob("*.py")), *sorted(folders[1].glob("*.py")), Path(__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
