"""Checks the quality of co-location: errors of memory estimates, and AUCs compared with the sequential arm. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median, stdev

import msgspec

from benchmarks.colocate.recorded import ArmRun, JobRun

__all__ = ["MemoryEstimates", "Parity", "memory_error", "parity"]


class MemoryEstimates(msgspec.Struct, frozen=True):
    """Errors of the estimates made before the start, as shares of the measured peaks. p50: of |error|. max_under:
    largest underestimate, 0 if there was none. jobs: number of compared jobs. unseen: jobs without a measured peak."""

    p50: float | None
    p90: float | None
    max_under: float | None
    max_over: float | None
    jobs: int
    unseen: int


class Parity(msgspec.Struct, frozen=True):
    """AUCs of the same jobs in ours and in the sequential arm of the same round. largest, mean: of the differences
    (ours minus sequential); largest by amount. spread_over_seeds: standard deviation of the AUCs of sequential jobs of
    one shape that differ only in their seed, root mean square over shapes; None if no shape has two jobs. is_noise: the
    largest difference is below `CHANCES` times the typical difference of two such jobs. planted: mean AUC / AUC of the
    true probabilities, in ours."""

    jobs: int
    largest: float
    largest_job: str
    mean: float
    spread_over_seeds: float | None
    is_noise: bool | None
    planted: float | None


CHANCES = 3.0


def memory_error(runs: Iterable[ArmRun]) -> MemoryEstimates:
    """The errors of the estimates of all jobs of these runs."""
    jobs = [job for run in runs for job in run.jobs]
    seen = [job for job in jobs if job.peak_bytes > 0 and job.estimated_bytes > 0]
    errors = sorted((job.estimated_bytes - job.peak_bytes) / job.peak_bytes for job in seen)
    if not errors:
        return MemoryEstimates(None, None, None, None, 0, len(jobs))
    amounts = sorted(map(abs, errors))
    return MemoryEstimates(
        p50=median(amounts),
        p90=amounts[min(len(amounts) - 1, int(0.9 * len(amounts)))],
        max_under=max(0.0, -errors[0]),
        max_over=max(0.0, errors[-1]),
        jobs=len(seen),
        unseen=len(jobs) - len(seen),
    )


def parity(pairs: Sequence[tuple[ArmRun, ArmRun]]) -> Parity | None:
    """Compares AUCs. pairs: (ours, sequential) of each round. None if no job has an AUC in both."""
    differences: list[tuple[float, str]] = []
    for ours, sequential in pairs:
        before = {job.job: job.auc for job in sequential.jobs}
        for job in ours.jobs:
            other = before.get(job.job)
            if job.auc is not None and other is not None:
                differences.append((job.auc - other, job.job))
    if not differences:
        return None
    largest, job_name = max(differences, key=lambda one: abs(one[0]))
    spread = _spread_over_seeds([run for _, run in pairs])
    shares = [job.auc / job.truth_auc for ours, _ in pairs for job in ours.jobs if job.auc and job.truth_auc]
    return Parity(
        jobs=len(differences),
        largest=largest,
        largest_job=job_name,
        mean=mean(one for one, _ in differences),
        spread_over_seeds=spread,
        # the difference of two draws has sqrt(2) times their standard deviation
        is_noise=abs(largest) <= CHANCES * 2**0.5 * spread if spread is not None else None,
        planted=mean(shares) if shares else None,
    )


def _spread_over_seeds(runs: Iterable[ArmRun]) -> float | None:
    variances = []
    for run in runs:
        by_shape: dict[str, list[JobRun]] = {}
        for job in run.jobs:
            by_shape.setdefault(job.shape, []).append(job)
        for jobs in by_shape.values():
            aucs = [job.auc for job in jobs if job.auc is not None]
            if len(aucs) > 1:
                variances.append(stdev(aucs) ** 2)
    return mean(variances) ** 0.5 if variances else None
