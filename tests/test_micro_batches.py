"""How a step is cut into micro-batches, and which worker computes which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastichost.micro_batches import MAX_MICRO_BATCHES, assign, micro_range, micro_ranges, step_range, steps_of

Rates = st.dictionaries(st.integers(0, 20), st.just(0.0) | st.floats(0.5, 1e6), min_size=1, max_size=6)


@given(st.integers(0, 1000), st.integers(1, 500), st.integers(1, MAX_MICRO_BATCHES))
def test_a_step_is_cut_into_consecutive_ranges_of_nearly_one_size(start: int, samples: int, micros: int) -> None:
    ranges = micro_ranges(start, start + samples, micros)
    assert 1 <= len(ranges) <= micros
    assert [position for first, stop in ranges for position in range(first, stop)] == list(
        range(start, start + samples)
    )
    sizes = [stop - first for first, stop in ranges]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1
    assert sizes[-1] >= min(2, samples)  # a model with batch normalisation cannot train on one sample
    assert micro_ranges(start, start + samples, len(ranges)) == ranges


def test_an_empty_range_has_no_micro_batches() -> None:
    assert micro_ranges(5, 5, 4) == ()
    assert steps_of(5, 5, 4) == 0


@given(st.integers(0, 100), st.integers(1, 300), st.integers(1, 50), st.integers(1, 8))
def test_the_micro_batches_of_all_steps_are_the_range(start: int, samples: int, batch_size: int, micros: int) -> None:
    stop, covered = start + samples, list[int]()
    for step in range(steps_of(start, stop, batch_size)):
        for micro, expected in enumerate(micro_ranges(*step_range(start, stop, batch_size, step), micros)):
            assert expected[1] - expected[0] >= min(2, samples, batch_size)
            assert micro_range(start, stop, batch_size, micros, step, micro) == expected
            covered += range(*expected)
    assert covered == list(range(start, stop))


def test_the_last_step_of_a_range_may_be_small() -> None:
    assert steps_of(3, 14, 4) == 3
    assert [micro_range(3, 15, 4, 2, 2, micro) for micro in (0, 1)] == [(11, 13), (13, 15)]


def test_a_trailing_step_of_one_sample_joins_the_one_before() -> None:
    assert steps_of(3, 12, 4) == 2
    assert [micro_range(3, 12, 4, 2, 1, micro) for micro in (0, 1)] == [(7, 10), (10, 12)]


@given(Rates, st.integers(1, MAX_MICRO_BATCHES))
def test_every_micro_batch_has_one_worker_and_the_step_is_as_short_as_possible(
    rates: dict[int, float], micros: int
) -> None:
    workers = assign(rates, micros)
    assert len(workers) == micros
    assert set(workers) <= set(rates)
    assert list(workers) == sorted(workers), "a worker reads consecutive positions"
    known = [rate for rate in rates.values() if rate > 0]
    usual = sum(known) / len(known) if known else 1.0
    speed = {worker: rate or usual for worker, rate in rates.items()}
    slowest_s = max(workers.count(worker) / speed[worker] for worker in rates)
    for other in rates:  # moving a micro-batch from the slowest worker to another does not finish earlier
        assert (workers.count(other) + 1) / speed[other] >= slowest_s * (1 - 1e-9)


def test_a_worker_twice_as_fast_gets_twice_as_many() -> None:
    assert assign({0: 100.0, 1: 200.0}, 6) == (0, 0, 1, 1, 1, 1)
    assert assign({4: 0.0, 2: 0.0}, 4) == (2, 2, 4, 4)
    assert assign({0: 100.0, 7: 0.0}, 4) == (0, 0, 7, 7), (
        "a worker without a measurement counts as the mean of the others"
    )
    assert assign({}, 4) == ()
