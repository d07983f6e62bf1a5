"""Row kernels against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost import sharding
from elastichost.arena import kernels
from elastichost.arena.kernels import kernel_ready

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_every_kernel_can_be_loaded_ahead() -> None:
    kernels.warm()


@given(INT64)
def test_the_hash_equals_that_of_the_shard_map(key: int) -> None:
    assert int(kernels.mix64(key)) == sharding.mix64(key)


@settings(deadline=None)
@given(keys=st.lists(INT64, min_size=1), rows=st.integers(1, 1 << 40))
def test_fixed_rows_by_every_rule(keys: list[int], rows: int) -> None:
    """The same keys for four features: hashed, modulo, of another kind of table, checked."""
    count, out = len(keys), np.full(4 * len(keys), 7, np.int64)
    rules = np.array([kernels.KEY_HASHED, kernels.KEY_MODULO, -1, kernels.KEY_CHECKED])
    bounds, tables = np.arange(5) * count, np.full(4, rows)
    bad = [i for i, key in enumerate(keys) if not 0 <= key < rows]
    found = kernels.fixed_rows(np.array(keys * 4, dtype=np.int64), bounds, tables, rules, out)
    assert found == (3 * count + bad[0] if bad else -1)
    assert out[:count].tolist() == [(key % (1 << 64)) % rows for key in keys]
    assert out[count : 2 * count].tolist() == [key % rows for key in keys]
    assert out[2 * count : 3 * count].tolist() == [7] * count
    good = keys[: bad[0]] if bad else keys
    assert out[3 * count : 3 * count + len(good)].tolist() == good


def initial(keys: np.ndarray, dim: int, padded: int, low: float = -0.5, high: float = 0.5, seed: int = 7) -> np.ndarray:
    weights = np.full((len(keys), padded), 9.0, np.float32)
    rows = np.arange(len(keys), dtype=np.int64)
    kernels.initialise_rows(weights, rows, keys, dim, low, high, kernels.initial_stream(seed, "items"))
    return weights


def test_initial_weights_depend_on_the_key_alone() -> None:
    keys = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 1000)
    order = np.random.default_rng(1).permutation(1000)
    weights = initial(keys, 6, 8)
    assert np.array_equal(initial(keys[order], 6, 8), weights[order])
    assert not weights[:, 6:].any()
    assert not np.array_equal(initial(keys, 6, 8, seed=8), weights)


def test_initial_weights_are_uniform_and_uncorrelated() -> None:
    weights = initial(np.arange(20_000), 8, 8, low=-0.25, high=0.75).astype(np.float64)
    assert weights.min() >= -0.25
    assert weights.max() < 0.75
    assert weights.mean() == pytest.approx(0.25, abs=5e-3)
    assert weights.var() == pytest.approx(1 / 12, rel=0.02)
    assert np.abs(np.corrcoef(weights.T) - np.eye(8)).max() < 0.03
    assert len(np.unique(weights[:, 0])) > 19_900


def test_equal_bounds_give_a_constant() -> None:
    assert (initial(np.arange(10), 3, 4, low=0.5, high=0.5)[:, :3] == 0.5).all()


def test_bfloat16_rows_begin_as_the_nearest_to_those_of_float32() -> None:
    rows, keys = np.arange(40_000)[::-1].copy(), np.arange(40_000) * 77
    exact, weights = np.zeros((40_000, 8), np.float32), np.ones((40_000, 8), np.uint16)
    for made in (exact, weights):
        kernels.initialise_rows(made, rows, keys, 6, -0.5, 0.5, kernels.initial_stream(7, "items"))
    nearest = torch.from_numpy(exact).to(torch.bfloat16)
    assert np.array_equal(weights, nearest.view(torch.int16).numpy().view(np.uint16))


def test_mark_seen_leaves_free_rows_free() -> None:
    seen = np.array([0, 1, 5], np.uint32)
    kernels.mark_seen(seen, np.array([0, 1, -1]), 7)
    assert seen.tolist() == [0, 7, 5]


def test_no_stamp_marks_a_row_as_free() -> None:
    assert kernels.seen_stamp(0) == 1
    assert kernels.seen_stamp(1 << 60) == (1 << 32) - 1


def test_read_only_and_unaligned_arrays_become_ready() -> None:
    array = np.frombuffer(np.arange(4, dtype=np.int64).tobytes(), np.int64)
    ready = kernel_ready(array)
    assert ready.flags.writeable
    assert ready.tolist() == [0, 1, 2, 3]
    assert ready.ctypes.data == array.ctypes.data, "no copy"
    odd = np.frombuffer(b"x" + bytes(16), np.int64, offset=1)
    assert kernel_ready(odd).flags.aligned
    assert kernel_ready(np.frombuffer(b"", np.int64)).shape == (0,)
    assert kernel_ready(np.arange(10)[::2]).tolist() == [0, 2, 4, 6, 8]
