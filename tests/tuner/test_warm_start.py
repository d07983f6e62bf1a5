"""A job that comes again begins where it ended; one like it near there; a stranger from nothing."""

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
        ended_utc=f"2026-03-{day:02}T10:00:00Z",
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
def test_distance_is_symmetric_and_zero_only_where_nothing_differs(one: JobFeatures, other: JobFeatures) -> None:
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert distance(one, one) == 0.0
    if one != other:
        assert distance(one, other) > 0


def test_what_matters_more_is_farther() -> None:
    again = distance(RETAIL, like(samples=55_000_000, rows=44_000_000))
    colleague = distance(RETAIL, like(user="ben", name="retail-2"))
    batch = distance(RETAIL, like(batch_size=4096))
    larger_host = distance(RETAIL, like(host_cores=32))
    served = distance(RETAIL, like(access="served"))
    gpu = distance(RETAIL, like(gpus=1))
    assert again < colleague < batch < larger_host < served < NEAR < gpu
    assert again < 0.1
    assert distance(RETAIL, like(batch_size=0)) < batch, "not known is better than known to differ"
    assert distance(RETAIL, TINY) > 2 * NEAR


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 4), st.integers(1, 9))
def test_a_recurrent_job_gets_its_own_best_plan_back(workers: int, servers: int, server_cores: int, times: int) -> None:
    plan = PlanSize(workers, servers, 1, server_cores)
    others = [record(PlanSize(3, 1), like(batch_size=8192, user="ben"), day=20), record(PlanSize(1, 1), TINY, day=21)]
    found = started(RETAIL, [*others, *(record(plan, day=day) for day in range(1, times + 1))])
    assert found.configuration == Configuration(workers, servers, 1, server_cores)


def test_the_newest_and_the_most_similar_weigh_most() -> None:
    plans = {1: PlanSize(3, 1), 2: PlanSize(12, 1), 3: PlanSize(12, 1)}
    assert started(RETAIL, [record(plan, day=day) for day, plan in plans.items()]).configuration.workers == 12
    plans = {1: PlanSize(12, 1), 2: PlanSize(12, 1), 3: PlanSize(3, 1)}
    assert 3 <= started(RETAIL, [record(plan, day=day) for day, plan in plans.items()]).configuration.workers < 7
    near, far = record(PlanSize(4, 1), like(rows=44_000_000), day=1), record(PlanSize(12, 1), like(tables=80), day=9)
    assert started(RETAIL, [near, far]).configuration.workers == 4
    assert [one.record for one in nearest(RETAIL, [far, near])] == [near, far]


def test_one_odd_run_does_not_move_the_plan_and_a_plan_that_was_measured_is_taken() -> None:
    plans = [PlanSize(8, 1), PlanSize(7, 1), PlanSize(8, 1), PlanSize(9, 1)]
    found = started(RETAIL, [record(plan, day=9 - day) for day, plan in enumerate(plans)])
    assert found.configuration == Configuration(8, 1)
    # the mean of 8 x 1 and 4 x 2 would be 6 x 1, which nobody tried
    mixed = [record(PlanSize(8, 1), day=3), record(PlanSize(4, 1, 2), day=2), record(PlanSize(8, 1), day=1)]
    assert started(RETAIL, mixed).configuration == Configuration(8, 1)
    # and far apart ones have nothing between them but the mean
    apart = [record(PlanSize(16, 1), day=2), record(PlanSize(2, 1), day=1)]
    assert 6 <= started(RETAIL, apart).configuration.workers <= 10


def test_a_plan_that_filled_its_host_fills_this_one() -> None:
    small = like(host_cores=8)
    assert started(RETAIL, [record(PlanSize(8, 1), small)]).configuration == Configuration(16, 1)
    assert started(RETAIL, [record(PlanSize(3, 1), small)]).configuration == Configuration(3, 1), "it left cores idle"
    large = like(host_cores=32)
    assert started(RETAIL, [record(PlanSize(16, 1, 2), large)]).configuration == Configuration(8, 1, 2)


@settings(max_examples=150, deadline=None)
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


def test_a_stranger_begins_from_nothing_and_is_told_why() -> None:
    empty = warm_start(RETAIL, [], BOUNDS)
    assert empty == ColdStart("the history is empty")
    found = warm_start(TINY, [record(), record(day=2)], BOUNDS)
    assert isinstance(found, ColdStart)
    assert found.reason.startswith(
        "none of 2 jobs of the history is similar enough to learn from: the most similar, retail-dlrm, has distance "
    )


def test_a_job_that_did_not_end_well_counts_less() -> None:
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


def test_what_is_known_better_counts_more() -> None:
    mean, sd = prior_of(RETAIL, [record(mean=-3.0, sd=0.05), record(mean=-1.0, sd=0.5, day=2)])
    assert mean == pytest.approx((-3.0 / 0.005 - 1.0 / 0.2525) / (1 / 0.005 + 1 / 0.2525))
    assert sd > 0.05
    # equal ones: their mean, and surer than each of them, but never surer than one run says of the next
    (mean, two), (_, one) = (prior_of(RETAIL, [record(sd=0.2, day=day) for day in range(1, n + 1)]) for n in (2, 1))
    assert mean == pytest.approx(-3.0)
    assert 0.05 < two < one
    assert one == pytest.approx(math.sqrt(0.2**2 + 2 * 0.05**2))


def test_the_prior_is_wider_the_farther_away_and_where_jobs_disagree() -> None:
    near = prior_of(RETAIL, [record()])[1]
    far = prior_of(RETAIL, [record(features=like(batch_size=4096))])[1]
    farther = prior_of(RETAIL, [record(features=like(batch_size=4096, mode="sync"))])[1]
    assert near < far < farther
    agreeing = prior_of(RETAIL, [record(mean=-3.0), record(mean=-3.1, day=2)])[1]
    assert prior_of(RETAIL, [record(mean=-2.0), record(mean=-4.0, day=2)])[1] > 0.9 > agreeing


def test_an_unlike_job_says_less_than_a_guess() -> None:
    """Guesses are good to a factor of e^2; jobs 0.8 away, near enough to be neighbours, to little less."""
    unlike = prior_of(RETAIL, [record(features=like(batch_size=8192), sd=0.05)])[1]
    alike = prior_of(RETAIL, [record(features=like(user="ben"), sd=0.05)])[1]
    assert alike < 0.2
    assert unlike > 1.4


def test_parameters_are_those_of_the_model_asked_for() -> None:
    records = [record(mean=-3.0), record(mean=5.0, day=2, model="optimus")]
    assert started(RETAIL, records).prior.mean == {"a0": pytest.approx(-3.0)}
    other = warm_start(RETAIL, records, BOUNDS, model="optimus")
    assert isinstance(other, WarmStart)
    assert other.prior.mean == {"a0": pytest.approx(5.0)}
    none = warm_start(RETAIL, records, BOUNDS, model="pollux")
    assert isinstance(none, WarmStart)
    assert none.prior.mean == none.prior.sd == {}
    assert none.memory.mean == {"beta": pytest.approx(-0.4)}
    assert "with what was learnt" not in none.reason


def of_memory(day: int, beta: float = -0.4) -> JobRecord:
    """A run that was killed before its speed was measured."""
    memory = Estimates({"beta": beta}, {"beta": 0.2})
    return record(
        PlanSize(16, 1), day=day, samples_per_s=0.0, ended_well=False, parameters=Estimates(), model="", memory=memory
    )


def test_a_run_without_a_speed_teaches_of_memory_and_its_plan_is_not_taken() -> None:
    killed = [of_memory(day, beta=-0.6) for day in range(10, 20)]
    found = started(RETAIL, [*killed, record(PlanSize(4, 1), day=1)])
    assert found.configuration == Configuration(4, 1), "ten newer ones do not crowd out the one that was measured"
    assert found.prior.mean == {"a0": pytest.approx(-3.0)} and len(found.similar) == 1
    assert -0.6 < found.memory.mean["beta"] < -0.4
    alone = warm_start(RETAIL, killed, BOUNDS)
    assert isinstance(alone, ColdStart)
    assert alone.memory.mean["beta"] == pytest.approx(-0.6) and alone.memory.sd["beta"] > 0.05
    assert alone.reason == "of no similar job a speed was measured; how its memory grew is known"
    assert isinstance(warm_start(TINY, killed, BOUNDS), ColdStart)
    assert warm_start(TINY, killed, BOUNDS).memory == Estimates()


@given(st.lists(records_of_any | st.builds(of_memory, st.integers(1, 9)), max_size=12), st.integers(1, 5))
def test_of_the_neighbours_alone_the_same_start_is_made(records: list[JobRecord], k: int) -> None:
    kept = neighbours(RETAIL, records, k)
    assert len(kept) <= 2 * k
    found, again = (warm_start(RETAIL, some, BOUNDS, k=k) for some in (records, kept))
    assert isinstance(found, WarmStart) == isinstance(again, WarmStart)
    assert again.memory == found.memory
    if kept:
        assert again == found


def test_nonsense_in_a_record_is_left_out() -> None:
    odd = Estimates({"a0": math.inf, "a1": 1.0, "a2": 2.0, "a3": 3.0}, {"a0": 0.1, "a1": -1.0, "a3": 0.1})
    assert started(RETAIL, [record(parameters=odd)]).prior.mean == {"a3": 3.0}


def test_the_reason_says_what_was_taken_from_where() -> None:
    one = started(RETAIL, [record(day=4)]).reason
    assert one == (
        "warm start with 7 workers, 2 PS: a similar job, nearest retail-dlrm of 2026-03-04, which is the same in all "
        "that counts, whose best plan was 7 workers, 2 PS with 98,765 samples/s; 1 parameter of the model begins with "
        "what was learnt"
    )
    several = started(RETAIL, [record(features=like(batch_size=4096), day=day) for day in (1, 2, 3)]).reason
    assert "3 similar jobs, nearest retail-dlrm of 2026-03-03, 0.4 away" in several
