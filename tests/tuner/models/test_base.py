"""Iteration times, intervals, and the load share of the busiest PS."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.models.base import interval, iteration_s, skew_of, skewed_shares

WORKLOAD = Workload(100)


def test_an_iteration_is_a_batch_of_one_worker_or_a_step_of_all() -> None:
    one = [Observation(Configuration(4, 1), 1000.0, 0.01)]
    assert iteration_s(WORKLOAD, one)[0] == pytest.approx(0.4)
    assert iteration_s(Workload(100, "sync"), one)[0] == pytest.approx(0.1)


@given(skew=st.floats(0.0, 1.0), servers=st.integers(2, 64), others=st.integers(1, 64))
def test_the_skew_is_the_same_for_any_number_of_servers(skew: float, servers: int, others: int) -> None:
    share = float(skewed_shares(skew, np.array([float(servers)]))[0])
    seen = [Observation(Configuration(1, servers), 1.0, 0.1, hot_share=share)]
    assert skew_of(seen) == pytest.approx(skew, abs=1e-9)
    assert skew_of(seen, hot_share=share) == pytest.approx(skew, abs=1e-9)
    assert skew_of(seen, hot_share=1 / servers) == pytest.approx(0.0, abs=1e-9)
    assert 1 / others <= skewed_shares(skew, np.array([float(others)]))[0] <= 1.0 + 1e-12


def test_the_newest_observations_determine_the_skew() -> None:
    def seen(at_s: float, servers: int, share: float | None) -> Observation:
        return Observation(Configuration(1, servers), 1.0, 0.1, at_s=at_s, hot_share=share)

    old, new = [seen(float(t), 4, 0.9) for t in range(9)], [seen(100.0 + t, 4, 0.25) for t in range(3)]
    assert skew_of([*new, *old]) == 0.0
    assert skew_of([]) == 0.0 and skew_of([seen(0.0, 1, 1.0), seen(0.0, 4, None)]) == 0.0
    assert skew_of([], hot_share=0.3) == 0.3


def test_one_server_alone_does_not_determine_the_skew() -> None:
    """It has the whole load, so the earlier observations with several servers are used."""
    several = [Observation(Configuration(4, p), 1.0, 0.1, at_s=float(p), hot_share=0.25 + 0.75 / p) for p in (2, 4)]
    alone = Observation(Configuration(4, 1), 1.0, 0.1, at_s=9.0, hot_share=1.0)
    assert skew_of([*several, alone], hot_share=1.0) == pytest.approx(0.25)
    assert skew_of([alone], hot_share=1.0) == 0.0


def test_an_interval_is_symmetric_in_logarithms_and_finite() -> None:
    found = interval(np.log([100.0, 1e300]), np.array([0.1, 500.0]), np.array([False, True]))
    assert found.high[0] / 100.0 == pytest.approx(100.0 / found.low[0]) == pytest.approx(math.exp(0.16448536))
    assert np.isfinite(found.high).all() and (found.low > 0).all()
