"""An id without a row keeps its place in a sequence, with zeros and no gradient; from a bag it is removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import PulledRows, ServedLookup
from elastichost.worker.model.embedding import meta_collections, replace_collections
from tests.worker.access.test_rows import FEATURES, Bench, batch

RATE = 0.125
ACCESS = {"direct": (False, ()), "served": (True, ()), "mixed": (False, (0, 1, 1, 0))}


def model(admit_after: int) -> ModelSpec:
    """The table `items` is read as mean bags and as a sequence, both with the feature `shared`."""
    tables = (
        TableSpec("items", 0, ("dynamic", "shared"), "int", rows=0, admit_after=admit_after),
        TableSpec("checked", 1, ("checked",), "int", rows=5000),
        TableSpec("hashed", 2, ("hashed",), "string", rows=100),
    )
    sgd = RowOptimizerSpec("sgd", RATE, 0.0)
    embeddings = (
        EmbeddingSpec("bags", 0, 0, "", "bag", ("shared",), 8, "mean", sgd, -0.5, 0.5),
        EmbeddingSpec("checked", 1, 1, "", "bag", ("checked",), 8, "sum", sgd, -0.5, 0.5),
        EmbeddingSpec("hashed", 2, 2, "", "bag", ("hashed",), 8, "sum", sgd, -0.5, 0.5),
        EmbeddingSpec("sequence", 3, 0, "", "sequence", ("dynamic", "shared"), 6, "none", sgd, -0.5, 0.5),
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 0, 0), 0, 1)


class Reference(Bench):
    """A bench that compares each lookup with a plain torch model on the same rows, values and gradients."""

    def look_up(self, features: KeyedJaggedTensor) -> torch.Tensor:
        bags, sequence = self.lookups
        parts = [bags.pooled(features)[:, :8], *sequence.sequence(features)]
        return torch.cat([part.flatten() for part in parts])

    def rows_of(self, keys: list[int]) -> dict[int, int]:
        """Key -> row, for keys that have a row."""
        rows = np.empty(len(keys), np.int64)
        self.arena.lookup(0, np.array(keys, np.int64), rows)
        return {key: row for key, row in zip(keys, rows.tolist(), strict=True) if row >= 0}

    def weights(self, embedding: int, dim: int) -> npt.NDArray[np.float32]:
        return self.arena.rows_view(embedding).view(np.float32)[:, :dim].copy()

    def forward(self, prepared: PreparedBatch, sums: npt.NDArray[np.float32] | None) -> torch.Tensor:
        samples = prepared.samples
        lengths = samples.lengths.reshape(len(FEATURES), -1)
        stops = np.cumsum(lengths.sum(axis=1))
        ids = {f: samples.keys[stops[i] - lengths[i].sum() : stops[i]].tolist() for i, f in enumerate(FEATURES)}
        self.known = self.rows_of(sorted({*ids["dynamic"], *ids["shared"]}))
        self.bag_weights = torch.from_numpy(self.weights(0, 8)).requires_grad_()
        self.sequence_weights = torch.from_numpy(self.weights(3, 6)).requires_grad_()
        bags, position = [], 0
        for length in lengths[FEATURES.index("shared")]:
            mine = ids["shared"][position : position + length]
            position += length
            rows = [self.known[key] for key in mine if key in self.known]
            bags.append(self.bag_weights[rows].mean(dim=0) if rows else torch.zeros(8))
        places = [
            self.sequence_weights[self.known[key]] if key in self.known else torch.zeros(6)
            for key in [*ids["dynamic"], *ids["shared"]]
        ]
        self.expected = torch.cat([*bags, *places])
        self.without_row = sum(key not in self.known for key in [*ids["dynamic"], *ids["shared"]])
        return super().forward(prepared, sums)


@pytest.fixture(params=list(ACCESS))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[object]:
    made: list[Reference] = []

    def create(admit_after: int) -> Reference:
        served, hosts = ACCESS[request.param]
        spec = model(admit_after)
        made.append(Reference(tmp_path / "b", spec, served=served, servers=max(1, len(hosts)), hosts=hosts))
        return made[-1]

    yield create
    for bench in made:
        bench.close()


def test_an_id_that_is_not_admitted_keeps_its_place_in_training(make) -> None:  # type: ignore[no-untyped-def]
    bench = make(admit_after=2)
    without_row = []
    for step in range(4):
        output = bench.train(batch(step))
        torch.testing.assert_close(output, bench.expected.detach(), rtol=1e-6, atol=1e-6)
        if bench.known:
            (bench.expected.square().sum() + bench.expected.sum()).backward()
        for embedding, weights in ((0, bench.bag_weights), (3, bench.sequence_weights)):
            learnt = weights.detach() if weights.grad is None else weights.detach() - RATE * weights.grad
            rows = sorted(bench.known.values())
            now = torch.from_numpy(bench.weights(embedding, weights.shape[1]))
            torch.testing.assert_close(now[rows], learnt[rows], rtol=1e-5, atol=1e-6)
        without_row.append((bench.without_row, len(bench.known)))
    assert without_row[0][1] == 0 and without_row[-1][0] > 0 and without_row[-1][1] > 10  # none, then some have rows


def test_an_unknown_id_keeps_its_place_in_evaluation(make) -> None:  # type: ignore[no-untyped-def]
    bench = make(admit_after=1)
    bench.train(batch(0))
    prepared = bench.rows.prepare(batch(1), lease_id=0, epoch=0, create=False, clock=0)
    with torch.no_grad():
        output = bench.forward(prepared, None)
    torch.testing.assert_close(output, bench.expected.detach(), rtol=1e-6, atol=1e-6)
    assert bench.without_row and bench.known
    lengths = batch(1).lengths.reshape(len(FEATURES), -1)
    assert prepared.length_per_key == lengths.sum(axis=1).tolist()
    np.testing.assert_array_equal(prepared.lengths, lengths.ravel())


def test_a_feature_of_bags_alone_loses_the_ids_without_a_row(tmp_path: Path) -> None:
    """A sequence of another feature makes no difference."""
    spec = model(1)
    sequence = EmbeddingSpec("sequence", 3, 0, "", "sequence", ("dynamic",), 6, "none", RowOptimizerSpec(), -0.5, 0.5)
    bench = Bench(
        tmp_path, ModelSpec(spec.tables, (*spec.embeddings[:3], sequence), spec.dense, 0, 1), served=False, servers=1
    )
    try:
        prepared = bench.rows.prepare(batch(1), lease_id=0, epoch=0, create=False, clock=0)
    finally:
        bench.close()
    of_feature = dict(zip(FEATURES, prepared.length_per_key, strict=True))
    known = dict(zip(FEATURES, batch(1).lengths.reshape(len(FEATURES), -1).sum(axis=1).tolist(), strict=True))
    assert of_feature == {**known, "shared": 0}


class Both(nn.Module):
    """A bag and a sequence over the same feature."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = EmbeddingBagCollection(
            tables=[EmbeddingBagConfig(name="b", embedding_dim=4, num_embeddings=5, feature_names=["f"])]
        )
        self.sequence = EmbeddingCollection(
            tables=[EmbeddingConfig(name="s", embedding_dim=4, num_embeddings=5, feature_names=["f"])],
            need_indices=True,
        )


def test_the_outputs_of_a_collection_are_on_one_device() -> None:
    """torch's meta device stands for a GPU: an operation on it fails with a tensor that was left on the CPU."""
    with meta_collections():
        network = Both()
    device, sgd = torch.device("meta"), RowOptimizerSpec()
    bag = EmbeddingSpec("b", 0, 0, "bags", "bag", ("f",), 4, "sum", sgd, 0.0, 0.0)
    place = EmbeddingSpec("s", 1, 0, "sequence", "sequence", ("f",), 4, "none", sgd, 0.0, 0.0)
    features = frozenset({"f"})
    bags, sequences = ServedLookup([bag], device, features), ServedLookup([place], device, features)
    replace_collections(network, {"bags": bags, "sequence": sequences})
    weights = np.zeros(2 * 5 * 4, np.float32)
    pulled = PulledRows(np.arange(5), np.array([0, 5]), weights, np.array([0, 20, 40]), 1)
    for lookup in (bags, sequences):
        lookup.load(pulled, None)
    kjt = KeyedJaggedTensor(keys=["f"], values=torch.tensor([1, 2, 0]), lengths=torch.tensor([2, 0, 1]))
    assert network.bags(kjt).values().device == device
    jagged = network.sequence(kjt)["f"]
    tensors = {
        "values": jagged.values(),
        "lengths": jagged.lengths(),
        "offsets": jagged.offsets(),
        "weights": jagged.weights(),
    }
    assert {name: tensor.device for name, tensor in tensors.items()} == dict.fromkeys(tensors, device)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "values": (3, 4),
        "lengths": (3,),
        "offsets": (4,),
        "weights": (3,),
    }
