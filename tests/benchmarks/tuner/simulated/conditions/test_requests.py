"""Sensible and tuned requests are better than random ones, within the share of the user, with enough memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS, JobMix, SimulatedJob, draw_jobs
from benchmarks.simulator.queueing.truth_tables import tables
from benchmarks.tuner.simulated.conditions.requests import DESCRIPTIONS, KINDS, RequestKind, requested

JOBS = draw_jobs(3, 12, JobMix(), tables(), DEFAULT_LIMITS)


def asked(kind: RequestKind) -> tuple[SimulatedJob, ...]:
    return requested(JOBS, kind, DEFAULT_LIMITS)


def speed(jobs: Sequence[SimulatedJob]) -> float:
    return float(np.exp(np.mean([np.log(job.truth.speed(job.request).samples_per_s) for job in jobs])))


def test_random_requests_are_as_drawn() -> None:
    assert asked("random") == JOBS and set(DESCRIPTIONS) == set(KINDS)


@pytest.mark.parametrize("kind", ["sensible", "tuned"])
def test_chosen_requests_are_within_the_share_and_their_memory_suffices(kind: RequestKind) -> None:
    for job, before in zip(asked(kind), JOBS, strict=True):
        assert job.request.cores <= job.share_cores
        needed = job.memory.used_bytes(float(job.samples), job.request)
        assert 1.05 * needed < job.requested_memory_bytes < 1.3 * needed
        assert job.job == before.job and job.truth == before.truth and job.arrived_s == before.arrived_s


def test_the_more_is_known_the_faster_the_request() -> None:
    random, sensible, tuned = (speed(asked(kind)) for kind in ("random", "sensible", "tuned"))
    assert sensible > 1.5 * random
    assert tuned > sensible
