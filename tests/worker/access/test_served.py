"""Served lookups give the same results as torchrec's own collections, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.specs import EmbeddingSpec, RowOptimizerSpec
from elastichost.worker.access.served import GradientSums, PulledRows, ServedLookup
from elastichost.worker.model.embedding import meta_collections, replace_collections

CPU = torch.device("cpu")
KEYS = ["a", "b", "c", "d"]


def bag_configs() -> list[EmbeddingBagConfig]:
    """Mixed dims (one not a multiple of four), MEAN and SUM, a shared table, a feature in two tables."""
    return [
        EmbeddingBagConfig(name="t0", embedding_dim=4, num_embeddings=10, feature_names=["a", "c"]),
        EmbeddingBagConfig(name="t1", embedding_dim=6, num_embeddings=8, feature_names=["b"], pooling=PoolingType.MEAN),
        EmbeddingBagConfig(name="t2", embedding_dim=4, num_embeddings=12, feature_names=["d", "b"]),
    ]


def spec(config: EmbeddingBagConfig | EmbeddingConfig, index: int) -> EmbeddingSpec:
    pooling = getattr(config, "pooling", None)
    return EmbeddingSpec(
        name=config.name,
        index=index,
        table=index,
        module="",
        kind="sequence" if pooling is None else "bag",
        features=tuple(config.feature_names),
        dim=config.embedding_dim,
        pooling="none" if pooling is None else ("mean" if pooling == PoolingType.MEAN else "sum"),
        optimizer=RowOptimizerSpec(),
        init_low=0.0,
        init_high=0.0,
    )


def random_kjt(rows: int, size: int = 5) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(0, 4, (len(KEYS) * size,), generator=generator)
    values = torch.randint(0, rows, (int(lengths.sum()),), generator=generator)
    return KeyedJaggedTensor(keys=KEYS, values=values, lengths=lengths)


def pulled_all(weights: Sequence[torch.Tensor], specs: list[EmbeddingSpec]) -> PulledRows:
    """Pulled rows that contain every row of every table, with the arena's padding."""
    padded = []
    for s, weight in zip(specs, weights, strict=True):
        array = np.zeros((weight.shape[0], s.padded_dim), dtype=np.float32)
        array[:, : s.dim] = weight.detach().numpy()
        padded.append(array)
    counts = [len(array) for array in padded]  # each embedding has its own table
    rows = np.concatenate([np.arange(count) for count in counts])
    flat = np.concatenate([array.ravel() for array in padded])
    return PulledRows(rows, np.cumsum([0, *counts]), flat, np.cumsum([0, *(array.size for array in padded)]), 0)


def parts(flat: np.ndarray, pulled: PulledRows, specs: list[EmbeddingSpec]) -> list[np.ndarray]:
    """The flat array split per embedding, each [rows, padded_dim]."""
    return [flat[pulled.offsets[s.index] : pulled.offsets[s.index + 1]].reshape(-1, s.padded_dim) for s in specs]


def test_pooled_forward_and_row_gradients_equal_torchrec() -> None:
    torch.manual_seed(0)
    reference = EmbeddingBagCollection(tables=bag_configs())
    with meta_collections():
        swapped = EmbeddingBagCollection(tables=bag_configs())
    specs = [spec(config, index) for index, config in enumerate(bag_configs())]
    lookup = ServedLookup(specs, CPU)
    replace_collections(swapped, {"": lookup})
    weights = [reference.embedding_bags[s.name].weight for s in specs]
    pulled = pulled_all(weights, specs)  # type: ignore[arg-type]
    sums = GradientSums().zeros(1, len(pulled.weights))
    lookup.load(pulled, sums)
    features = random_kjt(8)
    expected, given = reference(features), swapped(features)
    assert given.keys() == expected.keys()
    torch.testing.assert_close(given.values(), expected.values())
    upstream = torch.randn_like(expected.values())
    expected.values().backward(upstream)
    given.values().backward(upstream)
    gradients = parts(sums, pulled, specs)
    for s, weight in zip(specs, weights, strict=True):
        assert weight.grad is not None
        np.testing.assert_allclose(gradients[s.index][:, : s.dim], weight.grad.numpy(), atol=1e-6)
        assert not gradients[s.index][:, s.dim :].any()
    assert list(swapped.parameters()) == []


def test_sequences_equal_torchrec() -> None:
    torch.manual_seed(0)
    configs = [
        EmbeddingConfig(name="t0", embedding_dim=6, num_embeddings=10, feature_names=["a", "c"]),
        EmbeddingConfig(name="t1", embedding_dim=6, num_embeddings=9, feature_names=["d"]),
    ]
    reference = EmbeddingCollection(tables=configs)
    with meta_collections():
        swapped = EmbeddingCollection(tables=configs)
    specs = [spec(config, index) for index, config in enumerate(configs)]
    lookup = ServedLookup(specs, CPU)
    replace_collections(swapped, {"": lookup})
    weights = [reference.embeddings[s.name].weight for s in specs]
    lookup.load(pulled_all(weights, specs), None)  # type: ignore[arg-type]
    features = random_kjt(9)
    expected, given = reference(features), swapped(features)
    assert set(given) == set(expected)
    for name in expected:
        torch.testing.assert_close(given[name].values(), expected[name].values())
        torch.testing.assert_close(given[name].lengths(), expected[name].lengths())


def test_gradients_of_several_lookups_are_summed_and_evaluation_keeps_none() -> None:
    specs = [spec(config, index) for index, config in enumerate(bag_configs())]
    weights = [torch.randn(12, s.dim) for s in specs]
    lookup, features = ServedLookup(specs, CPU), random_kjt(8)
    pulled, buffers = pulled_all(weights, specs), GradientSums()
    sums = []
    for repeats in (1, 3):
        flat = buffers.zeros(repeats, len(pulled.weights))  # odd numbers share a buffer
        lookup.load(pulled, flat)
        torch.stack([lookup.pooled(features) for _ in range(repeats)]).sum().backward()
        sums.append(parts(flat.copy(), pulled, specs))
    for s in specs:
        assert sums[0][s.index].any()
        np.testing.assert_allclose(sums[1][s.index], 3 * sums[0][s.index], rtol=1e-6)
        assert not sums[1][s.index][:, s.dim :].any()
    lookup.load(pulled, None)
    assert not lookup.pooled(features).requires_grad
    assert not any(part.requires_grad for part in lookup.sequence(features))


def test_a_batch_without_any_row() -> None:
    specs = [spec(config, index) for index, config in enumerate(bag_configs())]
    lookup = ServedLookup(specs, CPU)
    pulled = pulled_all([torch.zeros(0, s.dim) for s in specs], specs)
    sums = GradientSums().zeros(1, 0)
    lookup.load(pulled, sums)
    empty = KeyedJaggedTensor(
        keys=KEYS, values=torch.zeros(0, dtype=torch.int64), lengths=torch.zeros(3 * len(KEYS), dtype=torch.int64)
    )
    pooled = lookup.pooled(empty)
    assert pooled.shape == (3, 4 + 4 + 6 + 4 + 4) and not pooled.any()
    pooled.sum().backward()
    assert [part.shape for part in parts(sums, pulled, specs)] == [(0, 4), (0, 8), (0, 4)]


def test_sums_do_not_change_those_of_the_batch_before() -> None:
    buffers = GradientSums()
    first, second = buffers.zeros(4, 10), buffers.zeros(5, 30)
    first[:], second[:] = 4.0, 5.0
    assert (first == 4.0).all() and len(first) == 10
    again = buffers.zeros(6, 8)
    assert not again.any() and (second == 5.0).all()
