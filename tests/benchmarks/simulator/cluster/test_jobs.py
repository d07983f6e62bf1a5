"""Drawn jobs: the same for the same seed, arriving in bursts, in families that recur."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS, REFERENCE, JobMix, arrivals, draw_jobs, spread_out
from benchmarks.simulator.queueing.truth_tables import tables

JOBS = draw_jobs(3, 400, JobMix(), tables(), DEFAULT_LIMITS)


def test_same_seed_same_jobs_whatever_their_number() -> None:
    again = draw_jobs(3, 60, JobMix(), tables(), DEFAULT_LIMITS)
    assert again == JOBS[:60]
    assert draw_jobs(4, 60, JobMix(), tables(), DEFAULT_LIMITS)[5] != JOBS[5]


def test_no_two_jobs_are_equal_and_families_recur() -> None:
    assert len({(one.truth, one.samples) for one in JOBS}) == len(JOBS)
    families = {one.features.family for one in JOBS}
    assert 10 < len(families) <= JobMix().families
    assert all(len({one.features.user for one in JOBS if one.features.family == family}) == 1 for family in families)


def test_requests_are_within_the_users_share() -> None:
    assert all(one.request.cores <= one.share_cores for one in JOBS)
    assert len({one.request for one in JOBS}) > 30


def test_some_jobs_request_too_little_memory() -> None:
    """Whole families do, so the share is a few percent to a third, depending on the seed."""
    poor = sum(one.requested_memory_bytes < one.memory.used_bytes(float(one.samples), one.request) for one in JOBS)
    many = draw_jobs(5, 2000, JobMix(families=1000, users=100), tables(), DEFAULT_LIMITS)
    share = sum(one.requested_memory_bytes < one.memory.used_bytes(float(one.samples), one.request) for one in many)
    assert poor < 140
    assert share / 2000 == pytest.approx(0.12, abs=0.05)


def test_sizes_are_heavy_tailed() -> None:
    seconds = sorted(one.samples / one.truth.speed(REFERENCE).samples_per_s for one in JOBS)
    assert seconds[-20] > 4 * statistics.median(seconds)


def test_arrivals_are_as_bursty_as_asked() -> None:
    gaps = np.diff(arrivals(1, 40_000, 50.0, 3.0))
    assert gaps.mean() == pytest.approx(50.0, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.15)
    with pytest.raises(ValueError, match="cv=.* must be at least 1"):
        arrivals(1, 10, 50.0, 0.5)


def test_spread_out() -> None:
    slower = spread_out(JOBS, 2.0)
    assert [one.arrived_s for one in slower] == [2 * one.arrived_s for one in JOBS]
    assert slower[0].truth == JOBS[0].truth
