"""Direct lookups train like fbgemm's fused kernels, with one call for a whole collection, in place in the arena."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
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
from elastichost.arena.layout import plan_layout
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, Pooling, RowOptimizer, RowOptimizerSpec, TableSpec
from elastichost.worker.access.direct import DirectLookup

CPU = torch.device("cpu")
KEYS = ["f0", "f1", "f2", "f3"]
# Table 0 has two features, so a row may get gradients through both.
FEATURES = (("f0", "f2"), ("f1",), ("f3",))
ROWS = (50, 3000, 7)
FBGEMM = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


def model_spec(
    optimizer: RowOptimizer = "rowwise_adagrad",
    pooling: Pooling = "sum",
    dims: tuple[int, int, int] = (8, 16, 4),
    rows: tuple[int, int, int] = ROWS,
) -> ModelSpec:
    tables = tuple(TableSpec(f"t{i}", i, FEATURES[i], "int", rows=rows[i]) for i in range(3))
    embeddings = tuple(
        EmbeddingSpec(
            name=f"t{i}",
            index=i,
            table=i,
            module="",
            kind="sequence" if pooling == "none" else "bag",
            features=FEATURES[i],
            dim=dims[i],
            pooling=pooling,
            optimizer=RowOptimizerSpec(optimizer, 0.1, 1e-8),
            init_low=-0.1,
            init_high=0.1,
        )
        for i in range(3)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 0, 0), 0, 1)


class Arenas:
    """Makes arenas in one test's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made: list[Arena] = []

    def make(self, spec: ModelSpec, memory_bytes: int = 1 << 26) -> Arena:
        directory = self.path / f"arena{len(self.made)}"
        directory.mkdir(mode=0o700)
        self.made.append(Arena.create(directory, plan_layout(spec, 0, memory_bytes)))
        for e in spec.embeddings:
            if spec.tables[e.table].rows:
                weights = np.random.default_rng(e.index).uniform(-0.1, 0.1, (spec.tables[e.table].rows, e.dim))
                self.rows(self.made[-1], e.index)[:, : e.dim] = weights
        return self.made[-1]

    @staticmethod
    def rows(arena: Arena, embedding: int) -> npt.NDArray[np.float32]:
        view = arena.rows_view(embedding)
        assert view.dtype == np.float32
        return view.view(np.float32)


@pytest.fixture
def arenas(tmp_path: Path) -> Iterator[Arenas]:
    made = Arenas(tmp_path)
    yield made
    for arena in made.made:
        arena.close()


def features(seed: int, size: int = 16, keys: list[str] = KEYS) -> KeyedJaggedTensor:
    """Bags of 0 to 3 ids below 7, so with many duplicates. The ids of a key do not depend on its position."""
    lengths, values = {}, {}
    for key in KEYS:
        generator = torch.Generator().manual_seed(1000 * seed + KEYS.index(key))
        lengths[key] = torch.randint(0, 4, (size,), generator=generator)
        values[key] = torch.randint(0, 7, (int(lengths[key].sum()),), generator=generator)
    return KeyedJaggedTensor(
        keys=keys, values=torch.cat([values[key] for key in keys]), lengths=torch.cat([lengths[key] for key in keys])
    )


def fbgemm(spec: ModelSpec) -> SplitTableBatchedEmbeddingBagsCodegen:
    """fbgemm's kernel for the same tables. Its features are ordered by table: f0, f2, f1, f3."""
    first = spec.embeddings[0]
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(spec.tables[e.table].rows, e.padded_dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for e in spec.embeddings],
        feature_table_map=[0, 0, 1, 2],
        optimizer=FBGEMM[first.optimizer.name],
        learning_rate=first.optimizer.learning_rate,
        eps=first.optimizer.eps,
        pooling_mode=PoolingMode.MEAN if first.pooling == "mean" else PoolingMode.SUM,
        device=CPU,
    )
    for weights, e in zip(kernel.split_embedding_weights(), spec.embeddings, strict=True):
        weights.copy_(torch.from_numpy(np.random.default_rng(e.index).uniform(-0.1, 0.1, weights.shape)))
    return kernel


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("dims", [(8, 16, 4), (64, 20, 36), (112, 48, 256)])
def test_training_is_that_of_fbgemms_fused_kernel(
    arenas: Arenas, optimizer: RowOptimizer, pooling: Pooling, dims: tuple[int, int, int]
) -> None:
    spec = model_spec(optimizer, pooling, dims)
    arena, plain = arenas.make(spec), fbgemm(spec)
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    for step in range(5):
        given, grouped = features(step), features(step, keys=["f0", "f2", "f1", "f3"])
        expected, pooled = plain(grouped.values(), grouped.offsets()), lookup.pooled(given)
        torch.testing.assert_close(pooled, expected, rtol=1e-6, atol=5e-7)  # sums may cancel
        upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(step))
        expected.backward(upstream)
        pooled.backward(upstream)
    for index, weights in enumerate(plain.split_embedding_weights()):
        np.testing.assert_allclose(arenas.rows(arena, index), weights.numpy(), rtol=2e-6, atol=5e-7)
    if optimizer != "sgd":
        for index, state in enumerate(plain.split_optimizer_states()):
            view = arena.state_view(index)
            assert view is not None
            np.testing.assert_allclose(view.ravel(), state[0].numpy().ravel(), rtol=2e-6)


def reference_step(
    weights: npt.NDArray[np.float64], state: npt.NDArray[np.float64], gradient: npt.NDArray[np.float64], rate: float
) -> None:
    """One step of row-wise Adagrad over `dim` elements, without the padding."""
    touched = np.flatnonzero(gradient.any(axis=1))
    state[touched] += (gradient[touched] ** 2).mean(axis=1)
    weights[touched] -= rate * gradient[touched] / (np.sqrt(state[touched]) + 1e-8)[:, None]


@pytest.mark.parametrize("dims", [(1, 6, 2), (3, 16, 5)])
def test_padded_dims_train_like_unpadded_mathematics(arenas: Arenas, dims: tuple[int, int, int]) -> None:
    spec = model_spec(dims=dims)
    arena = arenas.make(spec)
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    weights = [arenas.rows(arena, e.index)[:, : e.dim].astype(np.float64) for e in spec.embeddings]
    states = [np.zeros(len(w)) for w in weights]
    for step in range(4):
        given = features(step)
        pooled = lookup.pooled(given)
        assert pooled.shape == (16, 2 * dims[0] + dims[1] + dims[2])
        upstream = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(step))
        pooled.backward(upstream)
        column = 0
        for e in spec.embeddings:
            gradient = np.zeros_like(weights[e.index])
            for feature in e.features:
                bags = np.repeat(np.arange(16), given[feature].lengths().numpy())
                part = upstream.numpy()[bags, column : column + e.dim]
                np.add.at(gradient, given[feature].values().numpy(), part)
                column += e.dim
            reference_step(weights[e.index], states[e.index], gradient, 0.1)
    for e in spec.embeddings:
        np.testing.assert_allclose(arenas.rows(arena, e.index)[:, : e.dim], weights[e.index], atol=2e-5)
        assert not arenas.rows(arena, e.index)[:, e.dim :].any(), "padding columns stay zero"


def test_sequences_are_rows_and_train_like_bags_of_one(arenas: Arenas) -> None:
    spec = model_spec(pooling="none", dims=(6, 16, 3))
    arena = arenas.make(spec)
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    weights = [arenas.rows(arena, e.index)[:, : e.dim].astype(np.float64) for e in spec.embeddings]
    states = [np.zeros(len(w)) for w in weights]
    for step in range(3):
        given = features(step)
        parts = lookup.sequence(given)
        wanted = [(e, feature) for e in spec.embeddings for feature in e.features]
        gradients = [np.zeros_like(w) for w in weights]
        loss = torch.zeros(())
        for part, (e, feature) in zip(parts, wanted, strict=True):
            ids = given[feature].values().numpy()
            np.testing.assert_allclose(part.detach().numpy(), weights[e.index][ids], atol=2e-6)
            if feature != "f2":  # f2 does not contribute to the loss
                upstream = torch.randn(part.shape, generator=torch.Generator().manual_seed(step))
                loss = loss + (part * upstream).sum()
                np.add.at(gradients[e.index], ids, upstream.numpy())
        loss.backward()
        for e in spec.embeddings:
            reference_step(weights[e.index], states[e.index], gradients[e.index], 0.1)
    for e in spec.embeddings:
        np.testing.assert_allclose(arenas.rows(arena, e.index)[:, : e.dim], weights[e.index], atol=2e-5)


def test_the_order_of_keys_and_the_layout_of_gradients_do_not_matter(arenas: Arenas) -> None:
    spec = model_spec(dims=(6, 16, 3))
    outputs = []
    for keys in (KEYS, ["f3", "f2", "f1", "f0"]):
        arena = arenas.make(spec)
        lookup = DirectLookup(arena, spec.embeddings, CPU)
        for step in range(2):
            pooled = lookup.pooled(features(step, keys=keys))
            # The gradient of a sum has strides of zero; that of a transposed use is column-major.
            (pooled.sum() if keys == KEYS else pooled.t().contiguous().sum()).backward()
        outputs.append((pooled.detach(), arena.rows_flat.copy()))
    assert torch.equal(outputs[0][0], outputs[1][0])
    np.testing.assert_array_equal(outputs[0][1], outputs[1][1])


def test_narrow_pooled_vectors_train_as_float32_ones_up_to_rounding(arenas: Arenas) -> None:
    spec = model_spec(dims=(32, 64, 32))
    outputs = []
    for is_narrow in (False, True):
        arena = arenas.make(spec)
        lookup = DirectLookup(arena, spec.embeddings, CPU)
        if is_narrow:
            lookup.narrow_pooled()
        for step in range(2):
            pooled = lookup.pooled(features(step))
            pooled.float().square().sum().backward()
        assert pooled.dtype == (torch.bfloat16 if is_narrow else torch.float32)
        outputs.append((pooled.detach().float(), arena.rows_flat.copy()))
    torch.testing.assert_close(*(out for out, _ in outputs), rtol=0.02, atol=0.01)
    np.testing.assert_allclose(*(rows for _, rows in outputs), rtol=0.02, atol=0.01)


def test_vectors_of_few_elements_are_never_narrow(arenas: Arenas) -> None:
    spec = model_spec(dims=(32, 16, 32))
    lookup = DirectLookup(arenas.make(spec), spec.embeddings, CPU)
    lookup.narrow_pooled()
    assert lookup.pooled(features(0)).dtype == torch.float32


def test_without_gradients_nothing_is_updated(arenas: Arenas) -> None:
    spec = model_spec()
    arena = arenas.make(spec)
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    before = arena.rows_flat.copy()
    with torch.no_grad():
        assert not lookup.pooled(features(0)).requires_grad
    with torch.inference_mode():
        lookup.sequence(features(0))
    lookup.pooled(features(0))  # a forward pass whose result is dropped
    np.testing.assert_array_equal(arena.rows_flat, before)
    assert not arena.state_flat.any()


def test_two_lookups_of_one_forward_pass_update_one_after_the_other(arenas: Arenas) -> None:
    spec = model_spec("sgd")
    arena = arenas.make(spec)
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    before = arena.rows_flat.copy()
    first, second = lookup.pooled(features(0)), lookup.pooled(features(1))
    (first.sum() + 2 * second.sum()).backward()
    together = arena.rows_flat - before
    arena.rows_flat[:] = before
    lookup.pooled(features(0)).sum().backward()
    (2 * lookup.pooled(features(1)).sum()).backward()
    np.testing.assert_allclose(together, arena.rows_flat - before, atol=1e-6)
    assert together.any()


def test_a_compiled_model_looks_up_and_trains_as_before(arenas: Arenas) -> None:
    spec = model_spec()
    results = []
    for compile_it in (False, True):
        arena = arenas.make(spec)
        lookup = DirectLookup(arena, spec.embeddings, CPU)

        def scores(given: KeyedJaggedTensor, lookup: DirectLookup = lookup) -> torch.Tensor:
            parts = [torch.relu(lookup.pooled(given)), *lookup.sequence(given)]
            return sum((part.sum() for part in parts), torch.zeros(()))

        model = torch.compile(scores, backend="eager") if compile_it else scores
        for step in range(2):
            model(features(step)).backward()
        results.append(arena.rows_flat.copy())
    np.testing.assert_allclose(results[1], results[0], atol=1e-6)


def test_the_learning_rate_scale_is_a_factor_on_every_update(arenas: Arenas) -> None:
    spec = model_spec("sgd")
    arena = arenas.make(spec)
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    moves = []
    for scale in (1.0, 0.25, 0.0):
        before = arena.rows_flat.copy()
        lookup.set_learning_rate_scale(scale)
        lookup.pooled(features(0)).sum().backward()
        moves.append(arena.rows_flat - before)
    np.testing.assert_allclose(moves[1], 0.25 * moves[0], atol=1e-6)
    assert moves[0].any() and not moves[2].any()


def test_one_collection_may_mix_optimizers_poolings_and_precisions(arenas: Arenas) -> None:
    """Each embedding trains as it does alone in a collection."""
    spec = model_spec()
    settings: list[tuple[RowOptimizer, Pooling]] = [("sgd", "mean"), ("rowwise_adagrad", "sum"), ("adagrad", "mean")]
    mixed = tuple(
        msgspec.structs.replace(e, optimizer=RowOptimizerSpec(optimizer, 0.1, 1e-8), pooling=pooling)
        for e, (optimizer, pooling) in zip(spec.embeddings, settings, strict=True)
    )
    halved = (mixed[0], msgspec.structs.replace(mixed[1], precision="bfloat16"), mixed[2])
    alone, together, half = (
        arenas.make(msgspec.structs.replace(spec, embeddings=mixed)),
        arenas.make(msgspec.structs.replace(spec, embeddings=mixed)),
        Arena.create(
            _directory(arenas.path), plan_layout(msgspec.structs.replace(spec, embeddings=halved), 0, 1 << 26)
        ),
    )
    arenas.made.append(half)
    lookups = [DirectLookup(alone, [e], CPU) for e in mixed]
    whole, narrow = DirectLookup(together, mixed, CPU), DirectLookup(half, halved, CPU)
    for e in mixed:
        start = arenas.rows(alone, e.index)
        if e.index == 1:
            start[:] = (start.view(np.uint32) >> 16 << 16).view(np.float32)  # representable in both precisions
            arenas.rows(together, 1)[:] = start
            half.rows_view(1)[:] = start.view(np.uint32) >> 16
        else:
            half.rows_view(e.index)[:] = start
    for step in range(3):
        given = features(step)
        expected = torch.cat([lookup.pooled(given) for lookup in lookups], dim=1)
        torch.testing.assert_close(whole.pooled(given), expected)
        torch.testing.assert_close(narrow.pooled(given), expected, rtol=0.02, atol=0.01)
        upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(step))
        for result in (expected, whole.pooled(given), narrow.pooled(given)):
            result.backward(upstream)
    for e in mixed:
        np.testing.assert_array_equal(arenas.rows(together, e.index), arenas.rows(alone, e.index))
    np.testing.assert_array_equal(half.rows_view(0), together.rows_view(0))


def _directory(path: Path) -> Path:
    directory = path / "half"
    directory.mkdir(mode=0o700)
    return directory


@pytest.mark.parametrize("size", [0, 1])
def test_the_smallest_batches(arenas: Arenas, size: int) -> None:
    spec = model_spec()
    lookup = DirectLookup(arenas.make(spec), spec.embeddings, CPU)
    pooled = lookup.pooled(features(3, size=size))
    assert pooled.shape == (size, 36)
    pooled.sum().backward()
    empty = KeyedJaggedTensor(
        keys=KEYS, values=torch.zeros(0, dtype=torch.int64), lengths=torch.zeros(4 * size, dtype=torch.int64)
    )
    assert not lookup.pooled(empty).any()
    assert [tuple(part.shape) for part in lookup.sequence(empty)] == [(0, 8), (0, 8), (0, 16), (0, 4)]


def test_the_last_row_of_a_sparse_space_beyond_4_gib_is_updated_in_its_place(arenas: Arenas) -> None:
    spec = model_spec(rows=(50, 0, 7))
    arena = arenas.make(spec, memory_bytes=1 << 36)
    far = arena.layout.row_space(1) - 1
    assert 4 * 16 * far > 1 << 34
    lookup = DirectLookup(arena, spec.embeddings, CPU)
    ids = [far, far - (1 << 26), far, 5]
    given = KeyedJaggedTensor(
        keys=KEYS,
        values=torch.tensor([3, *ids]),
        lengths=torch.tensor([1, 0, 0, 0, 2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    )
    lookup.pooled(given).sum().backward()
    for row, gradient in ((far, 2.0), (far - (1 << 26), 1.0), (5, 1.0)):
        np.testing.assert_allclose(arena.rows_view(1)[row], np.full(16, -0.1), rtol=1e-6)
        state = arena.state_view(1)
        assert state is not None
        assert state[row] == gradient**2
    assert not arena.rows_view(1)[far - 1].any()
    assert arena.touched_bytes() < 64 << 20
