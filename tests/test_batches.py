"""The ranges of batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastichost.batches import MIN_SAMPLES, batch_ranges, batches_of, largest_batch, scored_batch


@given(st.integers(0, 50), st.integers(0, 300), st.integers(1, 40))
def test_batches_cover_their_range_and_none_is_too_small(start: int, samples: int, batch_size: int) -> None:
    ranges = list(batch_ranges(start, start + samples, batch_size))
    assert [position for first, stop in ranges for position in range(first, stop)] == list(
        range(start, start + samples)
    )
    sizes = [stop - first for first, stop in ranges]
    assert len(sizes) == batches_of(samples, batch_size)
    assert set(sizes[:-1]) <= {batch_size}
    assert all(min(MIN_SAMPLES, batch_size, samples) <= size <= largest_batch(batch_size) for size in sizes)


@given(st.integers(1, 1 << 20))
def test_scoring_takes_about_the_memory_of_a_training_step(batch_size: int) -> None:
    scored = scored_batch(batch_size)
    assert batch_size <= scored <= max(512, 2 * batch_size)
    assert scored <= 4096 or scored == batch_size


def test_a_trailing_sample_joins_the_batch_before() -> None:
    assert list(batch_ranges(0, 9, 4)) == [(0, 4), (4, 9)]
    assert list(batch_ranges(0, 1, 4)) == [(0, 1)]
    assert list(batch_ranges(0, 3, 1)) == [(0, 1), (1, 2), (2, 3)]
