"""Row kernels against plain numpy and against fbgemm's fused optimizers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost import sharding
from elastichost.arena import kernels
from elastichost.arena.kernels import kernel_ready
from elastichost.specs import EmbeddingSpec, RowOptimizer, RowOptimizerSpec

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FBGEMM = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


def test_every_kernel_can_be_loaded_ahead() -> None:
    kernels.warm()


@given(INT64)
def test_the_hash_is_the_shard_maps(key: int) -> None:
    assert int(kernels.mix64(key)) == sharding.mix64(key)


@settings(deadline=None)
@given(st.lists(st.one_of(INT64, st.integers(-3, 3))))
def test_unique_keys_keep_the_order_of_first_appearance(keys: list[int]) -> None:
    given_keys = np.array(keys, dtype=np.int64)
    unique, inverse = kernels.unique_keys(given_keys)
    assert unique.tolist() == list(dict.fromkeys(keys))
    assert np.array_equal(unique[inverse], given_keys)


@settings(deadline=None)
@given(keys=st.lists(INT64, min_size=1), rows=st.integers(1, 1 << 40))
def test_fixed_rows_by_every_rule(keys: list[int], rows: int) -> None:
    """The keys four times: hashed, modulo, of another kind of table, checked."""
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


def test_gather_gives_zeros_where_there_is_no_row() -> None:
    weights, out = np.random.default_rng(0).random((10, 4), np.float32), np.ones((3, 4), np.float32)
    kernels.gather_rows(weights, np.array([3, -1, 9]), out)
    assert np.array_equal(out, [weights[3], np.zeros(4), weights[9]])


def test_mark_seen_leaves_free_rows_free() -> None:
    seen = np.array([0, 1, 5], np.uint32)
    kernels.mark_seen(seen, np.array([0, 1, -1]), 7)
    assert seen.tolist() == [0, 7, 5]


def test_stamps_never_mean_free() -> None:
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


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("dim", [1, 6, 16])
def test_optimizers_are_fbgemms(name: RowOptimizer, dim: int) -> None:
    spec = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), dim, "sum", RowOptimizerSpec(name, 0.07, 1e-6), 0, 0)
    padded, generator = spec.padded_dim, np.random.default_rng(5)
    fused = SplitTableBatchedEmbeddingBagsCodegen(
        [(100, padded, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=FBGEMM[name],
        learning_rate=spec.kernel_learning_rate,
        eps=1e-6,
        pooling_mode=PoolingMode.SUM,
        device=torch.device("cpu"),
    )
    weights = np.zeros((100, padded), np.float32)
    weights[:, :dim] = generator.normal(size=(100, dim))
    (parameter,) = fused.split_embedding_weights()
    parameter.copy_(torch.from_numpy(weights))
    state = np.zeros((100, padded) if name == "adagrad" else 100, np.float32)
    for _ in range(4):
        rows = generator.permutation(100)[:40].astype(np.int64)
        gradients = np.zeros((40, padded), np.float32)
        gradients[:, :dim] = generator.normal(size=(40, dim))
        fused(torch.from_numpy(rows), torch.arange(41)).backward(torch.from_numpy(gradients))
        rate = spec.kernel_learning_rate
        if name == "sgd":
            kernels.sgd_rows(weights, rows, gradients, rate)
        elif name == "adagrad":
            kernels.adagrad_rows(weights, state, rows, gradients, rate, 1e-6)
        else:
            kernels.rowwise_adagrad_rows(weights, state, rows, gradients, rate, 1e-6)
    np.testing.assert_allclose(weights, parameter.numpy(), rtol=1e-6, atol=1e-6)
    if name != "sgd":
        np.testing.assert_allclose(state.ravel(), fused.split_optimizer_states()[0][0].numpy().ravel(), rtol=1e-6)
    assert not weights[:, dim:].any()
