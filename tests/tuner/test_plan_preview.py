"""The forecast for a job from the measurements of its earlier runs, with few and with very many candidates."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.history.features import JobFeatures, JobRecord, PlanSize
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.plan_preview import measured_before, preview_plan
from elastichost.tuner.policy.candidates import Bounds, count
from elastichost.tuner.policy.search_space import ALL_OF_THEM

FEATURES = JobFeatures("retail:build", tables=26, mean_dim=16, ids_per_sample=26, batch_size=100)
SEEN = Observation(Configuration(4, 1), 1000.0, 0.01, seconds=3.0, iterations=100, compute_s=0.3)


def record(observations: str, written_utc: str = "2026-01-01T00:00:00Z") -> JobRecord:
    return JobRecord(FEATURES, written_utc, PlanSize(4, 1), 1000.0, PlanSize(4, 1), observations=observations)


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


CLOUD = Workload(100, access="served", row_bytes=4000, bandwidth_bytes_per_s=1e8)
TIMES = {"compute_s": 0.01, "reader_s": 0.004, "server_cpu_s": 0.002, "bytes_moved": 1e5, "exchange_s": 0.004}


@pytest.mark.parametrize(
    ("binds", "changed", "samples_per_s"),
    [
        ("compute_s", {}, 4 * 100 / 0.0105),
        ("input_s", {"reader_s": 0.02}, 4 * 100 / 0.0205),
        ("servers_s", {"server_cpu_s": 0.01, "exchange_s": 0.03}, 100 / 0.0102),
        ("link_s", {"bytes_moved": 4e6, "exchange_s": 0.09}, 2 * 100 / 0.042),
    ],
)
def test_the_parts_of_a_batch_show_what_binds(binds: str, changed: dict[str, float], samples_per_s: float) -> None:
    """Four workers and one PS. The PS serves one batch of every worker while a worker trains one; so does its link."""
    seen = Observation(Configuration(4, 1), samples_per_s, 0.01, seconds=9.0, iterations=1000, **{**TIMES, **changed})
    only = Bounds(Configuration(4, 1), Configuration(4, 1))
    found = preview_plan("elastichost", CLOUD, only, (seen,), None, 0.03)
    assert found is not None and found.parts is not None
    parts = msgspec.structs.asdict(found.parts)
    batch_s = parts.pop("batch_s")
    assert batch_s == pytest.approx(4 * 100 / found.forecasts[0].samples_per_s)
    assert max(parts, key=lambda name: parts[name] or 0.0) == binds
    assert parts[binds] == pytest.approx(batch_s, rel=0.3)


def test_parts_that_a_job_does_not_have_are_not_told() -> None:
    bounds = Bounds(Configuration(1, 1), Configuration(2, 2))
    found = preview_plan("elastichost", Workload(100), bounds, (SEEN,), None, 0.03)
    assert found is not None and found.parts is not None
    assert found.parts.link_s is None and found.parts.input_s is None
    rival = preview_plan("optimus", Workload(100), bounds, (SEEN,), None, 0.03)
    assert rival is not None and rival.parts is None
