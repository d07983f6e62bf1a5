"""A batch with mapped and pulled rows gives the same results as one with all rows mapped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.kernels import (
    pool_bags,
    pool_placed_bags,
    scatter_gradients,
    scatter_pulled,
    split_by_place,
    update_rows,
)
from elastichost.arena.rows import bag_kernels as columns
from elastichost.arena.rows.bag_chains import UpdateWorkspace
from elastichost.sharding import bucket_of_hash, mix64
from tests.arena.rows.test_bag_kernels import PROBLEMS, RATES, Problem

Float32 = npt.NDArray[np.float32]


class Placed:
    """Some rows of every embedding are pulled: their lines follow one another in random order, embedding after
    embedding. The mapped copies of the pulled rows are overwritten with NaN."""

    def __init__(self, problem: Problem, seed: int, share: float) -> None:
        rng = np.random.default_rng(seed)
        self.pulled_at = np.zeros(len(problem.entries), np.int64)
        self.values, self.mapped = problem.values.copy(), problem.rows.copy()
        self.lines: list[tuple[int, int, int]] = []  # where a pulled row was mapped, where it is, its width
        at = 0
        for e, (first, stop, _, _) in zip(problem.embeddings, problem.updates, strict=True):
            pulled = rng.permutation(e.rows)[: round(share * e.rows)]
            start = int(problem.entries[first, columns.ROWS_OFFSET])
            place = {int(row): position for position, row in enumerate(pulled)}
            self.lines += [(start + row * e.width, at + position * e.width, e.width) for row, position in place.items()]
            self.pulled_at[first:stop] = at
            for entry in range(first, stop):
                begin, end = (int(problem.offsets[b]) for b in (entry * problem.size, (entry + 1) * problem.size))
                of_entry = self.values[begin:end]
                self.values[begin:end] = [~place[row] if row in place else row for row in of_entry.tolist()]
            at += len(pulled) * e.width
        self.pulled = np.zeros(at, np.float32)
        for source, target, width in self.lines:
            self.pulled[target : target + width] = self.mapped[source : source + width]
            self.mapped[source : source + width] = np.nan

    def in_one(self, mapped: Float32, pulled: Float32) -> Float32:
        """The same batch with all rows mapped."""
        whole = mapped.copy()
        for source, target, width in self.lines:
            whole[source : source + width] = pulled[target : target + width]
        return whole


SHARES = st.sampled_from([0.0, 0.3, 0.7, 1.0])


@settings(deadline=None)
@given(PROBLEMS, st.integers(0, 1 << 16), SHARES)
def test_pooling_is_the_same_to_the_bit(problem: Problem, seed: int, share: float) -> None:
    placed = Placed(problem, seed, share)
    out, expected = np.full((2, problem.size * problem.width), np.nan, np.float32)
    pool_bags(problem.rows, problem.entries, problem.values, problem.offsets, expected)
    where = (problem.entries, placed.pulled_at, placed.values, problem.offsets)
    pool_placed_bags(placed.mapped, placed.pulled, *where, out)
    np.testing.assert_array_equal(out, expected)


@settings(deadline=None)
@given(PROBLEMS, st.integers(0, 1 << 16), SHARES)
def test_mapped_rows_of_bfloat16_beside_pulled_ones_of_float32(problem: Problem, seed: int, share: float) -> None:
    halves = (problem.rows.view(np.uint32) >> 16).astype(np.uint16)
    problem.rows[:] = (halves.astype(np.uint32) << 16).view(np.float32)
    placed = Placed(problem, seed, share)
    out, expected = np.full((2, problem.size * problem.width), np.nan, np.float32)
    pool_bags(problem.rows, problem.entries, problem.values, problem.offsets, expected)
    where = (problem.entries, placed.pulled_at, placed.values, problem.offsets)
    pool_placed_bags((placed.mapped.view(np.uint32) >> 16).astype(np.uint16), placed.pulled, *where, out)
    np.testing.assert_array_equal(out, expected)


@settings(deadline=None)
@given(PROBLEMS, st.integers(0, 1 << 16), SHARES)
def test_gradients_are_added_where_their_rows_are(problem: Problem, seed: int, share: float) -> None:
    placed = Placed(problem, seed, share)
    sums, expected = np.zeros_like(placed.pulled), np.zeros_like(problem.rows)
    call = (problem.entries, problem.values, problem.offsets, problem.gradient)
    scatter_gradients(expected, *call)
    scatter_pulled(sums, problem.entries, placed.pulled_at, placed.values, problem.offsets, problem.gradient)
    for source, target, width in placed.lines:
        np.testing.assert_array_equal(sums[target : target + width], expected[source : source + width])
    whole, _ = problem.updated()
    before = problem.rows.copy()
    space = UpdateWorkspace(max(e.width for e in problem.embeddings))
    space.reserve(len(problem.values))
    rates = np.tile(RATES, (len(problem.embeddings), 1))
    update_rows(
        placed.mapped,
        problem.state,
        problem.entries,
        np.array(problem.updates, np.int64),
        rates,
        placed.values,
        problem.offsets,
        problem.gradient,
        *space.arrays(),
        np.uint64(0),
    )
    # The pulled rows are unchanged, and their NaN in the arena was neither read nor written.
    for source, _, width in placed.lines:
        assert np.isnan(placed.mapped[source : source + width]).all()
        whole[source : source + width] = before[source : source + width]
    np.testing.assert_allclose(placed.in_one(placed.mapped, placed.pulled), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_ids_are_split_by_their_buckets(seed: int) -> None:
    """Features of a dynamic table with 16 buckets, of a fixed one with 4 buckets of 10 rows, and again of the dynamic
    one."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 30, 3)
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    keys = rng.integers(-(1 << 62), 1 << 62, bounds[-1])
    keys[bounds[1] : bounds[2]] %= 40
    is_mapped = rng.random(20) < (0.0, 1.0, 0.5)[seed % 3]
    arrays = [np.full(len(keys), -7) for _ in range(5)]
    values, here_keys, here_at, there_keys, there_at = arrays
    here_bounds, there_bounds = np.empty((2, 4), np.int64)
    split_by_place(
        keys,
        bounds,
        np.array([(16).bit_length() - 65, 10, (16).bit_length() - 65]),
        np.array([4, 0, 4]),
        is_mapped,
        values,
        here_keys,
        here_at,
        here_bounds,
        there_keys,
        there_at,
        there_bounds,
    )
    for f in range(3):
        here, there = [], []
        for i in range(bounds[f], bounds[f + 1]):
            key = int(keys[i])
            bucket = key // 10 if f == 1 else 4 + bucket_of_hash(mix64(key), 16)
            if not is_mapped[bucket]:
                there.append((key, i))
            elif f != 1:
                here.append((key, i))
            assert values[i] == (key if f == 1 and is_mapped[bucket] else -7)
        for found, at, of_feature, expected in (
            (here_keys, here_at, here_bounds, here),
            (there_keys, there_at, there_bounds, there),
        ):
            part = slice(of_feature[f], of_feature[f + 1])
            assert list(zip(found[part].tolist(), at[part].tolist(), strict=True)) == expected
