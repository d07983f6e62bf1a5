"""The forecast for a job from the measurements of its earlier runs, with few and with very many candidates."""

from __future__ import annotations

import msgspec

from elastichost.history.features import JobFeatures, JobRecord, PlanSize
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.plan_preview import measured_before, preview_plan
from elastichost.tuner.policy.candidates import Bounds, count
from elastichost.tuner.policy.search_space import ALL_OF_THEM

FEATURES = JobFeatures("retail:build", tables=26, mean_dim=16, ids_per_sample=26, batch_size=100)
SEEN = Observation(Configuration(4, 1), 1000.0, 0.01, seconds=3.0, iterations=100, compute_s=0.3)


def record(observations: str, ended_utc: str = "2026-01-01T00:00:00Z") -> JobRecord:
    return JobRecord(FEATURES, ended_utc, PlanSize(4, 1), 1000.0, PlanSize(4, 1), observations=observations)


def test_observations_of_another_version_are_left_out() -> None:
    strange = record('[{"samples_per_s":3.0}]')
    known = record(msgspec.json.encode([SEEN]).decode())
    assert measured_before(FEATURES, [strange]) == ()
    assert [one.configuration for one in measured_before(FEATURES, [strange, known])] == [SEEN.configuration]


def test_of_very_many_candidates_the_promising_ones_are_forecast() -> None:
    bounds = Bounds(Configuration(1, 1), Configuration(128, 64, 128), cores=128)
    assert count(bounds) > ALL_OF_THEM
    found = preview_plan("elastichost", Workload(100, access="served"), bounds, (SEEN,), None, 0.03)
    assert found is not None
    speeds = [one.samples_per_s for one in found.forecasts]
    assert speeds[0] > 2 * SEEN.samples_per_s
    assert len({one.configuration for one in found.forecasts}) == len(speeds) > 100


def test_few_candidates_are_all_forecast() -> None:
    bounds = Bounds(Configuration(1, 1), Configuration(8, 2, 4), cores=8)
    found = preview_plan("elastichost", Workload(100, host_cores=8), bounds, (SEEN,), None, 0.03)
    assert found is not None
    assert len(found.forecasts) == count(bounds)
    assert found.measured == (SEEN.configuration,)


def test_without_observations_and_prior_there_is_no_forecast() -> None:
    assert (
        preview_plan("elastichost", Workload(100), Bounds(Configuration(1, 1), Configuration(2, 2)), (), None, 0.0)
        is None
    )
