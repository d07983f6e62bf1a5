"""The warm start: a repeated job starts with its best plan, a similar job near it, a dissimilar job with no prior."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.candidates import Bounds, as_configurations, enumerate_candidates
from elastichost.tuner.warm_start import NEAR, ColdStart, WarmStart, distance, nearest, neighbours, warm_start
from tests.effort import examples

PLAN = PlanSize(7, 2)
RETAIL = JobFeatures(
    family="elastichost.models.dlrm:build",
    name="retail-dlrm",
    user="ana",
    tables=26,
    dynamic_tables=3,
    rows=40_000_000,
    largest_rows=10_000_000,
    mean_dim=32.0,
    largest_dim=64,
    ids_per_sample=30.0,
    dense_bytes=4_000_000,
    batch_size=2048,
    samples=50_000_000,
    host_cores=16,
)
TINY = JobFeatures(
    family="mine.py:build", tables=3, rows=1000, mean_dim=4.0, batch_size=64, mode="sync", access="served"
)
BOUNDS = Bounds(Configuration(1, 1, 1, 1), Configuration(32, 8, 8, 4), cores=16)


def record(
    plan: PlanSize = PLAN,
    features: JobFeatures = RETAIL,
    day: int = 1,
    mean: float = -3.0,
    sd: float = 0.1,
    **more: object,
) -> JobRecord:
    made = JobRecord(
        features=features,
        written_utc=f"2026-03-{day:02}T10:00:00Z",
        best=plan,
        samples_per_s=98_765.4,
        final=plan,
        model="elastichost",
        parameters=Estimates({"a0": mean}, {"a0": sd}),
        memory=Estimates({"beta": -0.4}, {"beta": 0.2}),
    )
    return msgspec.structs.replace(made, **more)


def like(**changes: object) -> JobFeatures:
    return msgspec.structs.replace(RETAIL, **changes)


def started(features: JobFeatures, records: list[JobRecord], bounds: Bounds = BOUNDS) -> WarmStart:
    found = warm_start(features, records, bounds)
    assert isinstance(found, WarmStart), found
    return found


features_of_any = st.builds(
    JobFeatures,
    family=st.sampled_from(["a:b", "c:d"]),
    user=st.sampled_from(["", "ana"]),
    tables=st.integers(0, 50),
    dynamic_tables=st.integers(0, 2),
    rows=st.sampled_from([0, 10, 10**9]),
    mean_dim=st.sampled_from([0.0, 4.0, 16.0]),
    dense_bytes=st.sampled_from([0, 1000, 10**6]),
    batch_size=st.sampled_from([32, 1024]),
    mode=st.sampled_from(["async", "sync"]),
    access=st.sampled_from(["direct", "served"]),
    host_cores=st.sampled_from([0, 4, 64]),
    gpus=st.sampled_from([0, 1, 2]),
)
records_of_any = st.builds(
    record,
    st.builds(PlanSize, st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    st.just(RETAIL) | st.just(like(batch_size=4096)) | st.just(like(tables=40)) | features_of_any,
    st.integers(1, 4),
    st.floats(-5, 5),
    st.floats(0, 2),
    ended_well=st.booleans(),
    model=st.sampled_from(["elastichost", "optimus"]),
)


@given(features_of_any, features_of_any)
def test_distance_is_symmetric_and_zero_only_for_equal_jobs(one: JobFeatures, other: JobFeatures) -> None:
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert distance(one, one) == 0.0
    if one != other:
        assert distance(one, other) > 0


def test_more_important_differences_give_larger_distances() -> None:
    again = distance(RETAIL, like(samples=55_000_000, rows=44_000_000))
    colleague = distance(RETAIL, like(user="ben", name="retail-2"))
    batch = distance(RETAIL, like(batch_size=4096))
    larger_host = distance(RETAIL, like(host_cores=32))
    served = distance(RETAIL, like(access="served"))
    gpu = distance(RETAIL, like(gpus=1))
    assert again < colleague < batch < larger_host < served < NEAR < gpu
    assert again < 0.1
    assert distance(RETAIL, like(batch_size=0)) < batch, "an unknown size counts less than a different size"
    assert distance(RETAIL, TINY) > 2 * NEAR


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 4), st.integers(1, 9))
def test_a_repeated_job_starts_with_its_best_plan(workers: int, servers: int, server_cores: int, times: int) -> None:
    plan = PlanSize(workers, servers, 1, server_cores)
    others = [record(PlanSize(3, 1), like(batch_size=8192, user="ben"), day=20), record(PlanSize(1, 1), TINY, day=21)]
    found = started(RETAIL, [*others, *(record(plan, day=day) for day in range(1, times + 1))])
    assert found.configuration == Configuration(workers, servers, 1, server_cores)


def test_the_newest_and_the_most_similar_jobs_have_most_weight() -> None:
    plans = {1: PlanSize(3, 1), 2: PlanSize(12, 1), 3: PlanSize(12, 1)}
    assert started(RETAIL, [record(plan, day=day) for day, plan in plans.items()]).configuration.workers == 12
    plans = {1: PlanSize(12, 1), 2: PlanSize(12, 1), 3: PlanSize(3, 1)}
    assert 3 <= started(RETAIL, [record(plan, day=day) for day, plan in plans.items()]).configuration.workers < 7
    near, far = record(PlanSize(4, 1), like(rows=44_000_000), day=1), record(PlanSize(12, 1), like(tables=80), day=9)
    assert started(RETAIL, [near, far]).configuration.workers == 4
    assert [one.record for one in nearest(RETAIL, [far, near])] == [near, far]


def test_one_outlier_does_not_change_the_plan_and_a_measured_plan_is_used() -> None:
    plans = [PlanSize(8, 1), PlanSize(7, 1), PlanSize(8, 1), PlanSize(9, 1)]
    found = started(RETAIL, [record(plan, day=9 - day) for day, plan in enumerate(plans)])
    assert found.configuration == Configuration(8, 1)
    # the mean of 8 x 1 and 4 x 2 would be 6 x 1, which was never measured
    mixed = [record(PlanSize(8, 1), day=3), record(PlanSize(4, 1, 2), day=2), record(PlanSize(8, 1), day=1)]
    assert started(RETAIL, mixed).configuration == Configuration(8, 1)
    # no measured plan is near the mean of plans that are far apart, so the mean is used
    apart = [record(PlanSize(16, 1), day=2), record(PlanSize(2, 1), day=1)]
    assert 6 <= started(RETAIL, apart).configuration.workers <= 10


def test_a_plan_that_filled_its_host_is_scaled_to_this_host() -> None:
    small = like(host_cores=8)
    assert started(RETAIL, [record(PlanSize(8, 1), small)]).configuration == Configuration(16, 1)
    assert started(RETAIL, [record(PlanSize(3, 1), small)]).configuration == Configuration(3, 1), "not filled"
    large = like(host_cores=32)
    assert started(RETAIL, [record(PlanSize(16, 1, 2), large)]).configuration == Configuration(8, 1, 2)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(records_of_any, max_size=8), features_of_any | st.just(RETAIL), st.integers(1, 30))
def test_the_plan_is_within_the_bounds_and_the_order_of_records_does_not_matter(
    records: list[JobRecord], features: JobFeatures, cores: int
) -> None:
    bounds = Bounds(Configuration(1, 1, 1, 1), Configuration(6, 3, 4, 2), cores=cores, share_cores=cores % 2 == 0)
    if cores == 1:
        return
    found = warm_start(features, records, bounds)
    shuffled = records.copy()
    random.Random(1).shuffle(shuffled)
    assert warm_start(features, shuffled, bounds) == found
    assert warm_start(features, records[::-1], bounds) == found
    if isinstance(found, ColdStart):
        assert all(distance(features, one.features) + 0.3 * (not one.ended_well) > NEAR for one in records)
        return
    assert found.configuration in as_configurations(enumerate_candidates(bounds))
    assert len(found.similar) <= 5
    assert all(one.distance <= NEAR for one in found.similar)
    assert found.prior.mean.keys() == found.prior.sd.keys()
    assert all(math.isfinite(value) for value in found.prior.mean.values())
    assert all(sd > 0 for sd in found.prior.sd.values())


def test_a_dissimilar_job_gets_a_cold_start_with_a_reason() -> None:
    empty = warm_start(RETAIL, [], BOUNDS)
    assert empty == ColdStart("the history is empty")
    found = warm_start(TINY, [record(), record(day=2)], BOUNDS)
    assert isinstance(found, ColdStart)
    assert found.reason.startswith(
        "no similar job among 2 jobs of the history: the most similar, retail-dlrm, has distance "
    )


def test_a_failed_job_has_less_weight() -> None:
    failed = record(PlanSize(16, 1), day=9, ended_well=False)
    older = record(PlanSize(4, 1), day=1)
    well = msgspec.structs.replace(failed, ended_well=True)
    beside_failed, beside_well = (started(RETAIL, [one, older]).configuration.workers for one in (failed, well))
    assert 4 <= beside_failed <= 6 < beside_well
    assert started(RETAIL, [failed]).configuration.workers == 16
    far = msgspec.structs.replace(failed, features=like(access="served"))
    assert isinstance(warm_start(RETAIL, [far], BOUNDS), ColdStart)
    assert isinstance(warm_start(RETAIL, [msgspec.structs.replace(far, ended_well=True)], BOUNDS), WarmStart)


# --- priors -----------------------------------------------------------------------------------------------------------


def prior_of(features: JobFeatures, records: list[JobRecord]) -> tuple[float, float]:
    found = started(features, records).prior
    return found.mean["a0"], found.sd["a0"]


def test_more_precise_estimates_have_more_weight() -> None:
    mean, sd = prior_of(RETAIL, [record(mean=-3.0, sd=0.05), record(mean=-1.0, sd=0.5, day=2)])
    assert mean == pytest.approx((-3.0 / 0.005 - 1.0 / 0.2525) / (1 / 0.005 + 1 / 0.2525))
    assert sd > 0.05
    # for equal estimates: their mean, with less error than each of them, but at least the run-to-run error
    (mean, two), (_, one) = (prior_of(RETAIL, [record(sd=0.2, day=day) for day in range(1, n + 1)]) for n in (2, 1))
    assert mean == pytest.approx(-3.0)
    assert 0.05 < two < one
    assert one == pytest.approx(math.sqrt(0.2**2 + 2 * 0.05**2))


def test_the_prior_widens_with_distance_and_with_disagreement() -> None:
    near = prior_of(RETAIL, [record()])[1]
    far = prior_of(RETAIL, [record(features=like(batch_size=4096))])[1]
    farther = prior_of(RETAIL, [record(features=like(batch_size=4096, mode="sync"))])[1]
    assert near < far < farther
    agreeing = prior_of(RETAIL, [record(mean=-3.0), record(mean=-3.1, day=2)])[1]
    assert prior_of(RETAIL, [record(mean=-2.0), record(mean=-4.0, day=2)])[1] > 0.9 > agreeing


def test_a_distant_job_is_hardly_better_than_the_default_guess() -> None:
    """The model's default guesses have an error of a factor e^2. The prior from a job at distance 0.8, which still
    counts as similar, is only a little better."""
    unlike = prior_of(RETAIL, [record(features=like(batch_size=8192), sd=0.05)])[1]
    alike = prior_of(RETAIL, [record(features=like(user="ben"), sd=0.05)])[1]
    assert alike < 0.2
    assert unlike > 1.4


def test_parameters_come_from_jobs_with_the_same_model() -> None:
    records = [record(mean=-3.0), record(mean=5.0, day=2, model="optimus")]
    assert started(RETAIL, records).prior.mean == {"a0": pytest.approx(-3.0)}
    other = warm_start(RETAIL, records, BOUNDS, model="optimus")
    assert isinstance(other, WarmStart)
    assert other.prior.mean == {"a0": pytest.approx(5.0)}
    none = warm_start(RETAIL, records, BOUNDS, model="pollux")
    assert isinstance(none, WarmStart)
    assert none.prior.mean == none.prior.sd == {}
    assert none.memory.mean == {"beta": pytest.approx(-0.4)}
    assert "from the history" not in none.reason


def of_memory(day: int, beta: float = -0.4) -> JobRecord:
    """A run that was killed before its speed was measured."""
    memory = Estimates({"beta": beta}, {"beta": 0.2})
    return record(
        PlanSize(16, 1), day=day, samples_per_s=0.0, ended_well=False, parameters=Estimates(), model="", memory=memory
    )


def test_a_run_without_a_measured_speed_gives_memory_estimates_but_no_plan() -> None:
    killed = [of_memory(day, beta=-0.6) for day in range(10, 20)]
    found = started(RETAIL, [*killed, record(PlanSize(4, 1), day=1)])
    assert found.configuration == Configuration(4, 1), "ten newer runs must not displace the measured one"
    assert found.prior.mean == {"a0": pytest.approx(-3.0)} and len(found.similar) == 1
    assert -0.6 < found.memory.mean["beta"] < -0.4
    alone = warm_start(RETAIL, killed, BOUNDS)
    assert isinstance(alone, ColdStart)
    assert alone.memory.mean["beta"] == pytest.approx(-0.6) and alone.memory.sd["beta"] > 0.05
    assert alone.reason == "no similar job has a measured speed; the growth of their memory is known"
    assert isinstance(warm_start(TINY, killed, BOUNDS), ColdStart)
    assert warm_start(TINY, killed, BOUNDS).memory == Estimates()


@given(st.lists(records_of_any | st.builds(of_memory, st.integers(1, 9)), max_size=12), st.integers(1, 5))
def test_neighbours_alone_give_the_same_warm_start(records: list[JobRecord], k: int) -> None:
    kept = neighbours(RETAIL, records, k)
    assert len(kept) <= 2 * k
    found, again = (warm_start(RETAIL, some, BOUNDS, k=k) for some in (records, kept))
    assert isinstance(found, WarmStart) == isinstance(again, WarmStart)
    assert again.memory == found.memory
    if kept:
        assert again == found


def test_invalid_estimates_in_a_record_are_left_out() -> None:
    odd = Estimates({"a0": math.inf, "a1": 1.0, "a2": 2.0, "a3": 3.0}, {"a0": 0.1, "a1": -1.0, "a3": 0.1})
    assert started(RETAIL, [record(parameters=odd)]).prior.mean == {"a3": 3.0}


def test_the_reason_names_the_source_of_the_plan() -> None:
    one = started(RETAIL, [record(day=4)]).reason
    assert one == (
        "warm start with 7 workers, 2 PS: 1 similar job in the history; the nearest is retail-dlrm of 2026-03-04 "
        "(the same job), its best plan was 7 workers, 2 PS with 98,765 samples/s; 1 parameter of the model starts "
        "from the history"
    )
    several = started(RETAIL, [record(features=like(batch_size=4096), day=day) for day in (1, 2, 3)]).reason
    assert "3 similar jobs in the history; the nearest is retail-dlrm of 2026-03-03 (distance 0.4)" in several
