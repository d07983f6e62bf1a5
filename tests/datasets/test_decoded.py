"""Batches of a decoded unit, shuffled or not, with bad rows or without, hold exactly the samples of their positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.datasets.decoded import DecodedUnit, IdColumn, cut_batches, prepare_unit
from elastichost.datasets.kernels.ragged import ragged_lengths, take_ragged
from tests.effort import examples

SAMPLES = st.integers(1, 60)


def drawn_unit(samples: int, seed: int, *, has_bad: bool, is_single_valued: bool) -> DecodedUnit:
    """A unit with a column of single ids, one of lists (or of single ids), and numbers that name the sample."""
    random = np.random.default_rng(seed)
    numbers = np.arange(samples)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 6, samples))])
    lists = IdColumn(random.integers(0, 9, offsets[-1]), offsets)
    return DecodedUnit(
        samples=samples,
        dense=np.stack([numbers, -numbers], axis=1).astype(np.float32),
        labels=(numbers % 2).astype(np.float32)[:, None],
        ids=(IdColumn(100 + numbers), IdColumn(200 + numbers) if is_single_valued else lists),
        weights=numbers.astype(np.float32) / 7,
        bad=random.random(samples) < 0.3 if has_bad else None,
    )


def keys_of(column: IdColumn, sample: int) -> list[int]:
    if column.offsets is None:
        return [int(column.keys[sample])]
    return column.keys[column.offsets[sample] : column.offsets[sample + 1]].tolist()


@settings(max_examples=examples(60), deadline=None)
@given(SAMPLES, st.integers(1, 20), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_batches_hold_the_samples_of_their_positions(
    samples: int, batch_size: int, is_shuffled: bool, has_bad: bool, is_single_valued: bool, seed: int
) -> None:
    decoded = drawn_unit(samples, seed, has_bad=has_bad, is_single_valued=is_single_valued)
    order = np.random.default_rng(seed + 1).permutation(samples) if is_shuffled else None
    in_order = np.arange(samples) if order is None else order
    position = 0
    for batch in cut_batches(prepare_unit(decoded, order), 3, 0, samples, batch_size):
        assert batch.start == position and batch.unit == 3
        wanted = [int(n) for n in in_order[batch.start : batch.stop] if decoded.bad is None or not decoded.bad[n]]
        assert batch.size == len(wanted) and batch.skipped == batch.stop - batch.start - batch.size
        assert batch.dense[:, 0].tolist() == wanted
        assert batch.labels[:, 0].tolist() == [n % 2 for n in wanted]
        assert batch.weights is not None and np.array_equal(batch.weights, decoded.weights[wanted])  # type: ignore[index]
        lists = [[keys_of(column, n) for n in wanted] for column in decoded.ids]
        assert batch.keys.tolist() == [key for column in lists for keys in column for key in keys]
        assert batch.lengths.tolist() == [len(keys) for column in lists for keys in column]
        assert batch.is_single_valued == is_single_valued
        position = batch.stop
    assert position == samples


def test_a_shuffled_unit_is_not_copied() -> None:
    """A unit may be as large as the memory that is left."""
    decoded = drawn_unit(50, 1, has_bad=False, is_single_valued=False)
    assert prepare_unit(decoded, np.arange(50)[::-1].copy()).decoded is decoded


@pytest.mark.parametrize("order", [[], [0], [2, 2, 0], [3, 1, 2, 0, 4]])
def test_keys_of_samples_in_any_order(order: list[int]) -> None:
    keys, offsets = np.arange(40, 49), np.array([0, 3, 3, 8, 8, 9])
    samples, lengths = np.array(order, np.int64), np.full(len(order), 7, np.int32)
    expected = [keys[offsets[n] : offsets[n + 1]].tolist() for n in order]
    assert ragged_lengths(offsets, samples, lengths) == sum(map(len, expected))
    assert lengths.tolist() == list(map(len, expected))
    out = np.full(int(lengths.sum()) + 1, -1)
    take_ragged(keys, offsets, samples, out[:-1])
    assert out.tolist() == [key for one in expected for key in one] + [-1]
