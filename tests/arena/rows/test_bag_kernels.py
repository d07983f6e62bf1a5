"""Pooled lookups, gradients and fused optimizers against slow and plain numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.kernels import pool_bags, scatter_gradients, update_rows
from elastichost.arena.rows import bag_kernels as entry_columns
from elastichost.arena.rows import bag_updates as update_columns
from elastichost.arena.rows.bag_chains import UpdateWorkspace
from elastichost.specs import RowOptimizer

RATE, EPS, DECAY, FIRST, SECOND = 0.1, 1e-4, 0.01, 0.1, 0.01
RATES = np.array([RATE, EPS, DECAY, FIRST, SECOND], np.float32)
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Embedding:
    """One embedding of a problem; padded rows have `width` elements."""

    dim: int
    rows: int
    features: int
    is_mean: bool
    optimizer: RowOptimizer

    @property
    def width(self) -> int:
        return (self.dim + 3) // 4 * 4

    @property
    def state_width(self) -> int:
        return {"sgd": 0, "adagrad": self.width, "rowwise_adagrad": 1, "adam": 2 * self.width + 1}[self.optimizer]


EMBEDDINGS = st.lists(
    st.builds(
        Embedding,
        dim=st.integers(1, 40),
        rows=st.integers(1, 40),
        features=st.integers(1, 3),
        is_mean=st.booleans(),
        optimizer=st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "adam"]),
    ),
    min_size=1,
    max_size=4,
)


class Problem:
    """Random rows, ids and upstream gradients of a batch, and the expected results (float64)."""

    def __init__(self, embeddings: list[Embedding], size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.embeddings, self.size = embeddings, size
        features = sum(e.features for e in embeddings)
        self.width = sum(e.features * e.dim for e in embeddings)
        lengths = rng.choice([0, 1, 1, 2, 5], features * size)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        parts: list[npt.NDArray[np.int64]] = []
        entries: list[list[int]] = []
        self.updates: list[list[int]] = []
        rows_at = state_at = column = 0
        for e in embeddings:
            self.updates.append(
                [len(entries), len(entries) + e.features, state_at, update_columns.OPTIMIZER_CODES[e.optimizer]]
            )
            for _ in range(e.features):
                first = len(entries) * size
                count = int(self.offsets[first + size] - self.offsets[first])
                parts.append(rng.integers(0, e.rows, count))
                entries.append([first, size, rows_at, e.dim, e.width, column, self.width, int(e.is_mean)])
                column += e.dim
            rows_at += e.rows * e.width
            state_at += e.rows * e.state_width
        self.entries = np.array(entries, np.int64)
        self.values = np.concatenate(parts).astype(np.int64)
        self.rows = rng.normal(size=rows_at).astype(np.float32)
        for e, (first, _, _, _) in zip(embeddings, self.updates, strict=True):
            self.matrix(self.rows, e, int(self.entries[first, entry_columns.ROWS_OFFSET]))[:, e.dim :] = 0
        self.state = rng.uniform(0, 2, state_at).astype(np.float32)
        for e, (_, _, first, _) in zip(embeddings, self.updates, strict=True):
            if e.optimizer == "adam":  # of padding, which has no gradients, both means are zero
                states = self.state[first : first + e.rows * e.state_width].reshape(e.rows, e.state_width)
                states[:, e.dim : e.width] = states[:, e.width + e.dim : 2 * e.width] = 0
        self.gradient = rng.normal(size=size * self.width).astype(np.float32)

    @staticmethod
    def matrix(flat: npt.NDArray[np.float32], e: Embedding, start: int) -> npt.NDArray[np.float32]:
        return flat[start : start + e.rows * e.width].reshape(e.rows, e.width)

    def bags(self, entry: int) -> list[npt.NDArray[np.int64]]:
        first = entry * self.size
        return [self.values[self.offsets[b] : self.offsets[b + 1]] for b in range(first, first + self.size)]

    def pooled(self, rows: npt.NDArray[np.float32]) -> Float64:
        out = np.zeros((self.size, self.width))
        for entry, e in enumerate(owner for owner in self.embeddings for _ in range(owner.features)):
            _, _, start, _, _, column, _, _ = self.entries[entry]
            for bag, ids in enumerate(self.bags(entry)):
                if len(ids):
                    summed = self.matrix(rows, e, start)[ids, : e.dim].astype(np.float64).sum(axis=0)
                    out[bag, column : column + e.dim] = summed / (len(ids) if e.is_mean else 1)
        return out

    def row_gradients(self, number: int) -> tuple[Float64, npt.NDArray[np.bool_]]:
        """The summed gradients of embedding `number`, float64 [rows, width], and which of its rows the batch has."""
        e, upstream = self.embeddings[number], self.gradient.reshape(self.size, self.width).astype(np.float64)
        sums, touched = np.zeros((e.rows, e.width)), np.zeros(e.rows, bool)
        for entry in range(*self.updates[number][:2]):
            column = self.entries[entry, entry_columns.COLUMN]
            for bag, ids in enumerate(self.bags(entry)):
                scale = 1 / len(ids) if e.is_mean and len(ids) else 1
                for row in ids:
                    sums[row, : e.dim] += scale * upstream[bag, column : column + e.dim]
                    touched[row] = True
        return sums, touched

    def updated(self) -> tuple[Float64, Float64]:
        rows, state = self.rows.astype(np.float64), self.state.astype(np.float64)
        for number, e in enumerate(self.embeddings):
            first, _, state_at, _ = self.updates[number]
            start = self.entries[first, entry_columns.ROWS_OFFSET]
            sums, touched = self.row_gradients(number)
            weights = rows[start : start + e.rows * e.width].reshape(e.rows, e.width)
            weights[touched] *= 1 - DECAY
            if e.optimizer == "sgd":
                weights[touched] -= RATE * sums[touched]
                continue
            squares = state[state_at : state_at + e.rows * e.state_width].reshape(e.rows, e.state_width)
            if e.optimizer == "adam":
                first, second, count = squares[:, : e.width], squares[:, e.width : -1], squares[:, -1:]
                count[touched] += 1
                first[touched] += FIRST * (sums - first)[touched]
                second[touched] += SECOND * (sums**2 - second)[touched]
                unbiased = second / (1 - (1 - SECOND) ** np.maximum(count, 1))
                rates = RATE / (1 - (1 - FIRST) ** np.maximum(count, 1))
                weights[touched] -= (rates * first / (np.sqrt(unbiased) + EPS))[touched]
                continue
            mean = (sums**2).mean(axis=1, keepdims=True) if e.optimizer == "rowwise_adagrad" else sums**2
            squares[touched] += mean[touched]
            weights[touched] -= (RATE * sums / (np.sqrt(squares) + EPS))[touched]
        return rows, state

    def update(
        self,
        rows: npt.NDArray[np.float32] | npt.NDArray[np.uint16],
        seed: int = 0,
        workspace: UpdateWorkspace | None = None,
    ) -> None:
        space = workspace or UpdateWorkspace(max(e.width for e in self.embeddings))
        space.reserve(len(self.values))
        rates = np.tile(RATES, (len(self.embeddings), 1))
        call = (self.entries, np.array(self.updates, np.int64), rates, self.values, self.offsets, self.gradient)
        update_rows(rows, self.state, *call, *space.arrays(), np.uint64(seed))


PROBLEMS = st.builds(Problem, EMBEDDINGS, size=st.integers(0, 9), seed=st.integers(0, 1 << 16))


@settings(deadline=None)
@given(PROBLEMS)
def test_pooling(problem: Problem) -> None:
    out = np.full(problem.size * problem.width, np.nan, np.float32)
    pool_bags(problem.rows, problem.entries, problem.values, problem.offsets, out)
    np.testing.assert_allclose(
        out.reshape(problem.size, problem.width), problem.pooled(problem.rows), rtol=1e-5, atol=1e-5
    )


@settings(deadline=None)
@given(PROBLEMS)
def test_pooling_of_bfloat16_is_that_of_the_same_numbers_as_float32(problem: Problem) -> None:
    halves = (problem.rows.view(np.uint32) >> 16).astype(np.uint16)
    widened = (halves.astype(np.uint32) << 16).view(np.float32)
    out, expected = np.empty((2, problem.size * problem.width), np.float32)
    pool_bags(halves, problem.entries, problem.values, problem.offsets, out)
    pool_bags(widened, problem.entries, problem.values, problem.offsets, expected)
    np.testing.assert_array_equal(out, expected)


@settings(deadline=None)
@given(PROBLEMS)
def test_scattered_gradients(problem: Problem) -> None:
    sums = np.zeros_like(problem.rows)
    scatter_gradients(sums, problem.entries, problem.values, problem.offsets, problem.gradient)
    for number, e in enumerate(problem.embeddings):
        start = problem.entries[problem.updates[number][0], entry_columns.ROWS_OFFSET]
        expected, _ = problem.row_gradients(number)
        np.testing.assert_allclose(problem.matrix(sums, e, start), expected, rtol=1e-5, atol=1e-5)


@settings(deadline=None)
@given(PROBLEMS)
def test_each_distinct_row_is_updated_once_by_the_sum_of_its_gradients(problem: Problem) -> None:
    rows, state = problem.updated()
    before = problem.rows.copy()
    problem.update(problem.rows)
    np.testing.assert_allclose(problem.rows, rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(problem.state, state, rtol=1e-4, atol=1e-5)
    for number, e in enumerate(problem.embeddings):
        start = problem.entries[problem.updates[number][0], entry_columns.ROWS_OFFSET]
        untouched = ~problem.row_gradients(number)[1]
        same = (problem.matrix(problem.rows, e, start)[untouched], problem.matrix(before, e, start)[untouched])
        np.testing.assert_array_equal(*same)
        assert not problem.matrix(problem.rows, e, start)[:, e.dim :].any(), "padding stays zero"


@settings(deadline=None)
@given(PROBLEMS, st.integers(0, 1 << 30))
def test_bfloat16_rows_become_a_neighbour_of_the_exact_result(problem: Problem, seed: int) -> None:
    halves = (problem.rows.view(np.uint32) >> 16).astype(np.uint16)
    problem.rows[:] = (halves.astype(np.uint32) << 16).view(np.float32)
    exact, state = problem.updated()
    problem.update(halves, seed)
    result = (halves.astype(np.uint32) << 16).view(np.float32)
    step = np.maximum(np.abs(exact), 1e-30) * 2.0**-7  # at least the distance between bfloat16 neighbours
    assert np.all(np.abs(result - exact) <= step + 1e-5)
    np.testing.assert_allclose(problem.state, state, rtol=1e-4, atol=1e-5)


def whole(embeddings: list[Embedding]) -> list[Embedding]:
    """The same embeddings with dims that are multiples of four, which bfloat16 outputs need."""
    return [replace(e, dim=e.width) for e in embeddings]


WHOLE_PROBLEMS = st.builds(Problem, EMBEDDINGS.map(whole), size=st.integers(0, 9), seed=st.integers(0, 1 << 16))


@settings(deadline=None)
@given(WHOLE_PROBLEMS)
def test_a_bfloat16_output_is_the_float32_one_rounded_to_the_nearest(problem: Problem) -> None:
    wide, narrow = np.empty(problem.size * problem.width, np.float32), np.empty(problem.size * problem.width, np.uint16)
    for out in (wide, narrow):
        pool_bags(problem.rows, problem.entries, problem.values, problem.offsets, out)
    bits = wide.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(narrow, rounded)


@settings(deadline=None)
@given(WHOLE_PROBLEMS)
def test_a_bfloat16_gradient_updates_rows_as_the_same_numbers_in_float32(problem: Problem) -> None:
    halves = (problem.gradient.view(np.uint32) >> 16).astype(np.uint16)
    problem.gradient = (halves.astype(np.uint32) << 16).view(np.float32)
    rows, state = problem.rows.copy(), problem.state.copy()
    problem.update(rows)
    updated, problem.state, problem.gradient = problem.state, state, halves  # type: ignore[assignment]
    problem.update(problem.rows)
    np.testing.assert_array_equal(problem.rows, rows)
    np.testing.assert_array_equal(problem.state, updated)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 5000])
def test_a_workspace_grows_and_serves_smaller_batches_again(count: int) -> None:
    embedding = Embedding(dim=16, rows=6000, features=1, is_mean=False, optimizer="rowwise_adagrad")
    workspace = UpdateWorkspace(embedding.width)
    for size in (2, count, 3, count):
        problem = Problem([embedding], size, seed=count)
        rows, _ = problem.updated()
        problem.update(problem.rows, workspace=workspace)
        np.testing.assert_allclose(problem.rows, rows, rtol=1e-4, atol=1e-5)
