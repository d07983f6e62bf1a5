"""fbgemm's fused kernel over the arena trains exactly like one over its own tensors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.arena import Arena
from elastichost.arena.layout import MAX_REGION_BYTES, plan_layout
from elastichost.errors import ArenaError
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizer, RowOptimizerSpec, TableSpec
from elastichost.worker.direct import DirectLookup

ROWS = (50, 3000)
CPU = torch.device("cpu")


def model_spec(optimizer: RowOptimizer, pooling: str, dims: tuple[int, int], dynamic: bool) -> ModelSpec:
    tables = tuple(
        TableSpec(f"t{i}", i, (f"f{i}",), "int", rows=0 if dynamic and i == 1 else rows) for i, rows in enumerate(ROWS)
    )
    embeddings = tuple(
        EmbeddingSpec(
            name=f"t{i}",
            index=i,
            table=i,
            module="",
            kind="bag",
            features=(f"f{i}",),
            dim=dim,
            pooling=pooling,  # type: ignore[arg-type]
            optimizer=RowOptimizerSpec(optimizer, 0.1, 1e-8),
            init_low=-0.1,
            init_high=0.1,
        )
        for i, dim in enumerate(dims)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 0, 0), 0, 1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "arena"
    path.mkdir(mode=0o700)
    return path


def features(top: int, seed: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (2 * 16,), generator=generator)
    values = torch.randint(0, top, (int(lengths.sum()),), generator=generator)
    return KeyedJaggedTensor(keys=["f0", "f1"], values=values, lengths=lengths)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_training_is_bitwise_that_of_a_plain_kernel(directory: Path, optimizer: RowOptimizer, pooling: str) -> None:
    spec = model_spec(optimizer, pooling, (8, 8), dynamic=False)
    plain = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, 8, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows in ROWS],
        optimizer={
            "sgd": EmbOptimType.EXACT_SGD,
            "adagrad": EmbOptimType.EXACT_ADAGRAD,
            "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        }[optimizer],
        learning_rate=0.1,
        eps=1e-8,
        pooling_mode=PoolingMode.MEAN if pooling == "mean" else PoolingMode.SUM,
        device=CPU,
    )
    with Arena.create(directory, plan_layout(spec, 0, 1 << 26)) as arena:
        lookup = DirectLookup(arena, spec.embeddings, CPU)
        for index, weights in enumerate(plain.split_embedding_weights()):
            weights.uniform_(-0.1, 0.1)
            arena.rows_view(index)[: len(weights)] = weights.numpy()
        for step in range(5):
            given = features(50, step)
            expected, pooled = plain(given.values(), given.offsets()), lookup.pooled(given)
            assert torch.equal(pooled, expected)
            upstream = torch.randn_like(expected)
            expected.backward(upstream)
            pooled.backward(upstream)
        for index, weights in enumerate(plain.split_embedding_weights()):
            np.testing.assert_array_equal(arena.rows_view(index)[: len(weights)], weights.numpy())
        if optimizer != "sgd":
            for index, state in enumerate(plain.split_optimizer_states()):
                view = arena.state_view(index)
                assert view is not None
                np.testing.assert_array_equal(view[: len(state[0])].ravel(), state[0].numpy().ravel())
        del lookup


@pytest.mark.parametrize("dims", [(1, 6), (3, 16)])
def test_padded_dims_train_like_unpadded_mathematics(directory: Path, dims: tuple[int, int]) -> None:
    spec = model_spec("rowwise_adagrad", "sum", dims, dynamic=False)
    with Arena.create(directory, plan_layout(spec, 0, 1 << 26)) as arena:
        lookup = DirectLookup(arena, spec.embeddings, CPU)
        weights = [np.random.default_rng(i).uniform(-1, 1, (ROWS[i], dim)) for i, dim in enumerate(dims)]
        states = [np.zeros(rows) for rows in ROWS]
        for i, w in enumerate(weights):
            arena.rows_view(i)[: len(w), : dims[i]] = w
        for step in range(4):
            given = features(50, step)
            pooled = lookup.pooled(given)
            assert pooled.shape == (16, sum(dims))
            upstream = torch.randn(pooled.shape)
            pooled.backward(upstream)
            for i, key in enumerate(given.keys()):
                jagged = given[key]
                bags = np.repeat(np.arange(16), jagged.lengths().numpy())
                start = sum(dims[:i])
                gradient = np.zeros_like(weights[i])
                np.add.at(gradient, jagged.values().numpy(), upstream.numpy()[bags, start : start + dims[i]])
                touched = np.unique(jagged.values().numpy())
                states[i][touched] += (gradient[touched] ** 2).mean(axis=1)
                step_size = 0.1 / (np.sqrt(states[i][touched]) + 1e-8)
                weights[i][touched] -= step_size[:, None] * gradient[touched]
        for i, w in enumerate(weights):
            np.testing.assert_allclose(arena.rows_view(i)[: len(w), : dims[i]], w, atol=2e-5)
            assert not arena.rows_view(i)[:, dims[i] :].any(), "padding columns stay zero"
        del lookup


def test_the_last_row_of_the_largest_sparse_space_is_updated_in_its_place(directory: Path) -> None:
    """fbgemm's backward wraps byte offsets at 4 GiB; the layout must never let it come to that."""
    spec = model_spec("rowwise_adagrad", "sum", (8, 8), dynamic=True)
    with Arena.create(directory, plan_layout(spec, 0, 1 << 36)) as arena:
        far = arena.layout.row_space(1) - 1
        assert 4 * (far + 1) * 8 == MAX_REGION_BYTES
        lookup = DirectLookup(arena, spec.embeddings, CPU)
        given = KeyedJaggedTensor(keys=["f0", "f1"], values=torch.tensor([3, far]), lengths=torch.tensor([1, 1]))
        lookup.pooled(given).backward(torch.ones(1, 16))
        np.testing.assert_allclose(arena.rows_view(1)[far], np.full(8, -0.1), rtol=1e-6)
        assert arena.touched_bytes() < 64 << 20
        del lookup


def test_a_table_beyond_the_kernels_reach_is_refused_by_name(directory: Path) -> None:
    spec = model_spec("sgd", "sum", (8, 8), dynamic=False)
    tables = (spec.tables[0], msgspec.structs.replace(spec.tables[1], rows=MAX_REGION_BYTES // 32 + 1))
    big = msgspec.structs.replace(spec, tables=tables)
    layout = plan_layout(big, 0, 1 << 30)

    class Unallocated:
        """Only the layout is looked at before the refusal."""

        def __init__(self) -> None:
            self.layout = layout

    with pytest.raises(ArenaError, match="'t1'"):
        DirectLookup(Unallocated(), big.embeddings, CPU)  # type: ignore[arg-type]
