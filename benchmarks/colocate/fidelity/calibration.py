"""Jobs of the simulator from runs of single jobs. Pure.

Each shape ran alone twice, with few samples and with many. The differences give the seconds T and the CPU seconds c of
a sample, without the start, the evaluation and the last checkpoint; the rest of the longer run is their time. The
single jobs of a run follow each other, which shows the time that the dispatcher takes from the end of a job to the
start of the next one; it is added.

The simulator's job has a step of min(c, 0.98 T) on a core, a reader with the rest of c, and a wait of the reader such
that the job alone takes T a sample: T = (read^p + step^p)^(1/p), as in `simulator.colocation.interference`. Which part
of the step waits for memory is not measured; it is that of the kind in `simulator.colocation.calibration`. The growth
of memory is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from benchmarks.colocate.jobs import Job
from benchmarks.colocate.recorded import ArmRun, JobRun
from benchmarks.simulator.colocation import calibration
from benchmarks.simulator.colocation.jobs import JobBatch, JobFamily, JobMode, QueuedJob, SimulatedHost
from elastichost.tuner.colocation.facts import HostCapacity
from elastichost.tuner.colocation.kinds import KINDS

__all__ = ["SoloCosts", "batch_of", "solo_costs"]

STEP_SHARE = 0.98  # of T that a step may take: the reader fills the rest
FILLING, BETA = sum(calibration.FILLING) / 2, 0.7  # of memory; assumed


class SoloCosts(msgspec.Struct, frozen=True):
    """One shape alone. sample_s, sample_cpu_s: of one sample. fixed_s: from the moment at which it could start, of its
    start, its evaluation and its checkpoint.
    estimated: the dispatcher's estimate of its peak memory / its peak."""

    shape: str
    kind: str
    sample_s: float
    sample_cpu_s: float
    fixed_s: float
    peak_bytes: int
    estimated: float


def solo_costs(short: ArmRun, long: ArmRun) -> dict[str, SoloCosts]:
    """The costs by shape, from a run of one job of each shape with few samples and one with many. Raises ValueError if
    a run failed, or if the longer job of a shape was not longer."""
    for run in (short, long):
        if run.failure:
            raise ValueError(f"a run of single jobs failed: {run.failure}")
    before, gap_s = {job.shape: job for job in short.jobs}, _gap_s(long.jobs)
    return {job.shape: _solo(before[job.shape], job, gap_s) for job in long.jobs if job.shape in before}


def _gap_s(jobs: Sequence[JobRun]) -> float:
    """The median time until the next job starts, after the host is ready and after the end of each job."""
    ordered = sorted(jobs, key=lambda job: job.started_s)
    ends_s = (0.0, *(job.ended_s for job in ordered))
    return median(max(0.0, job.started_s - end_s) for job, end_s in zip(ordered, ends_s, strict=False))


def _solo(short: JobRun, long: JobRun, gap_s: float) -> SoloCosts:
    samples, seconds = long.samples - short.samples, long.wall_s - short.wall_s
    if samples <= 0 or seconds <= 0:
        raise ValueError(
            f"{long.shape}: {samples} more samples took {seconds:.2f} s more; record the single jobs again"
        )
    cpu_s = max(0.0, long.cpu_s - short.cpu_s)
    return SoloCosts(
        shape=long.shape,
        kind=long.kind,
        sample_s=seconds / samples,
        sample_cpu_s=cpu_s / samples,
        fixed_s=gap_s + max(0.0, long.wall_s - long.samples * seconds / samples),
        peak_bytes=max(short.peak_bytes, long.peak_bytes),
        estimated=long.estimated_bytes / max(1, long.peak_bytes) if long.estimated_bytes else 1.0,
    )


def batch_of(jobs: Sequence[Job], costs: Mapping[str, SoloCosts], seed: int, cores: int, memory_bytes: int) -> JobBatch:
    """The jobs of a recorded batch, in the order of its queue. seed: of the costs of pairs of kinds, and of noise.
    Raises KeyError for a shape without costs."""
    shapes = _in_order(job.shape.name for job in jobs)
    families = {shape: _family(index, costs[shape]) for index, shape in enumerate(shapes)}
    queued = tuple(
        QueuedJob(job.name, index, families[job.shape.name], _lasts_s(job, costs[job.shape.name]))
        for index, job in enumerate(jobs)
    )
    return JobBatch(seed, "balanced", SimulatedHost(HostCapacity(cores, memory_bytes, ())), queued)


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _lasts_s(job: Job, costs: SoloCosts) -> float:
    """Seconds after its start, which the simulator adds."""
    return max(costs.sample_s, costs.fixed_s - calibration.START_S + job.samples * costs.sample_s)


def _family(index: int, costs: SoloCosts) -> JobFamily:
    kind = next(kind for kind in KINDS if kind == costs.kind)
    power = calibration.PIPELINE
    step_s = min(costs.sample_cpu_s, STEP_SHARE * costs.sample_s)
    read_cpu_s = costs.sample_cpu_s - step_s
    read_s = (costs.sample_s**power - step_s**power) ** (1 / power)
    reference = calibration.REFERENCES[kind]
    found = calibration.SampleCosts(
        read_cpu=read_cpu_s,
        read_wait=max(0.0, read_s - read_cpu_s),
        read_input=0.0,
        launch=0.0,
        copy=0.0,
        kernel=0.0,
        occupancy=0.0,
        gpu_bandwidth=0.0,
        compute=step_s,
        stall=reference.stall,
        table_bytes=0.5 * costs.peak_bytes,
    )
    sizes = (JobMode(1, False, float(costs.peak_bytes)),)
    return JobFamily(index, kind, found, sizes, FILLING, BETA, costs.estimated)
