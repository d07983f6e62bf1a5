"""From ids to rows: direct and served access see the same rows, and train them alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.datasets.api import SampleBatch
from elastichost.errors import IdOutOfRangeError
from elastichost.plan import ProcessId
from elastichost.sharding import rows_per_bucket
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.worker.channel import FencedError, PullChannel, PushChannel
from elastichost.worker.direct import DirectLookup
from elastichost.worker.rows import PreparedBatch, RowPreparer
from elastichost.worker.served import PulledRows, ServedLookup
from tests.worker.parameter_server import JOB, ThreadedServers

FEATURES = ("dynamic", "checked", "shared", "hashed")
CPU = torch.device("cpu")
WORKER = ProcessId("worker", 0, 1)


def model(admit_after: int = 1) -> ModelSpec:
    tables = (
        TableSpec("items", 0, ("dynamic", "shared"), "int", rows=0, admit_after=admit_after),
        TableSpec("checked", 1, ("checked",), "int", rows=5000),
        TableSpec("hashed", 2, ("hashed",), "string", rows=100),
    )
    embeddings = tuple(
        EmbeddingSpec(name, i, table, "", "bag", features, dim, "sum", RowOptimizerSpec(), -0.5, 0.5)
        for i, (name, table, features, dim) in enumerate(
            [
                ("items", 0, ("dynamic", "shared"), 8),
                ("checked", 1, ("checked",), 8),
                ("hashed", 2, ("hashed",), 8),
                ("items_wide", 0, ("dynamic", "shared"), 1),
            ]
        )
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 0, 0), 0, 1)


def batch(seed: int, size: int = 16) -> SampleBatch:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 3, (len(FEATURES), size)).astype(np.int32)
    tops = {"dynamic": 1 << 62, "checked": 5000, "shared": 40, "hashed": 1 << 62}
    keys = [generator.integers(0, tops[f], lengths[i].sum()) for i, f in enumerate(FEATURES)]
    keys[0] %= 50  # repeated within and between batches, and shared with the third feature
    none = np.zeros((size, 1), dtype=np.float32)
    return SampleBatch(0, 0, size, size, 0, none, np.concatenate(keys), lengths.ravel(), none)


class Bench:
    """One arena with its PS, and a preparer and lookups of one kind of access."""

    def __init__(self, directory: Path, spec: ModelSpec, *, served: bool, servers: int) -> None:
        arena_directory = directory / "arena"
        arena_directory.mkdir(mode=0o700, parents=True)
        self.arena = Arena.create(arena_directory, plan_layout(spec, 3, 1 << 24))
        self.servers = ThreadedServers(self.arena, directory, servers)
        holder = self.servers.holder()
        self.pull = PullChannel(WORKER, JOB, holder, spec)
        self.rows = RowPreparer(self.arena, FEATURES, ("train.parquet",), self.pull, served=served)
        bucket_rows = [
            self.arena.layout.bucket_capacity(t.index) if t.is_dynamic else rows_per_bucket(t) for t in spec.tables
        ]
        self.push = PushChannel(WORKER, JOB, holder, spec, bucket_rows, lambda: None)
        deep, wide = spec.embeddings[:3], spec.embeddings[3:]
        self.served = [ServedLookup(deep, CPU), ServedLookup(wide, CPU)] if served else []
        self.direct = [] if served else [DirectLookup(self.arena, deep, CPU), DirectLookup(self.arena, wide, CPU)]
        self.sequence = 0

    def forward(self, prepared: PreparedBatch, *, train: bool) -> torch.Tensor:
        kjt = KeyedJaggedTensor(
            keys=list(FEATURES),
            values=torch.from_numpy(prepared.values),
            lengths=torch.from_numpy(prepared.lengths),
            offsets=torch.from_numpy(prepared.offsets),
        )
        for lookup in self.served:
            assert prepared.pulled is not None
            lookup.load(prepared.pulled, requires_grad=train)
        return torch.cat([lookup.pooled(kjt) for lookup in (*self.served, *self.direct)], dim=1)

    def train(self, samples: SampleBatch) -> torch.Tensor:
        prepared = self.rows.prepare(samples, lease_id=1, epoch=0, create=True, clock=0)
        pooled = self.forward(prepared, train=True)
        (pooled.square().sum() + pooled.sum()).backward()
        self.sequence += 1
        if prepared.pulled is not None:
            gradients = {k: g for lookup in self.served for k, g in lookup.gradients().items()}
            self.push.push(self.sequence, prepared.pulled, gradients, 1.0)
        return pooled.detach()

    def close(self) -> None:
        self.pull.close()
        self.push.close()
        self.servers.close()
        self.arena.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made: list[Bench] = []

    def create(name: str, spec: ModelSpec, *, served: bool, servers: int = 1) -> Bench:
        made.append(Bench(tmp_path / name, spec, served=served, servers=servers))
        return made[-1]

    yield create
    for bench in made:
        bench.close()


@pytest.mark.parametrize("servers", [1, 3])
def test_served_training_equals_direct_training(make, servers: int) -> None:  # type: ignore[no-untyped-def]
    direct, served = make("d", model(), served=False), make("s", model(), served=True, servers=servers)
    for step in range(6):
        torch.testing.assert_close(direct.train(batch(step)), served.train(batch(step)), atol=1e-5, rtol=1e-4)


def test_evaluation_creates_nothing_and_leaves_unknown_ids_out(make) -> None:  # type: ignore[no-untyped-def]
    for served in (False, True):
        bench = make(f"e{served}", model(), served=served)
        unknown = bench.rows.prepare(batch(1), lease_id=0, epoch=0, create=False, clock=0)
        assert unknown.length_per_key[0] == unknown.length_per_key[2] == 0
        assert unknown.length_per_key[1] == batch(1).lengths.reshape(4, -1)[1].sum()
        assert int(unknown.lengths.sum()) == len(unknown.values) == unknown.offsets[-1]
        again = bench.rows.prepare(batch(1), lease_id=0, epoch=0, create=True, clock=0)
        assert again.length_per_key[0] == batch(1).lengths.reshape(4, -1)[0].sum()


def test_ids_are_admitted_at_their_second_batch(make) -> None:  # type: ignore[no-untyped-def]
    for served in (False, True):
        bench = make(f"a{served}", model(admit_after=2), served=served)
        first, second = (
            bench.rows.prepare(batch(1), lease_id=0, epoch=0, create=True, clock=0).length_per_key for _ in range(2)
        )
        assert (first[0], first[2]) == (0, 0)
        assert (second[0], second[2]) == tuple(batch(1).lengths.reshape(4, -1)[[0, 2]].sum(axis=1))


def test_an_id_out_of_range_is_named(make) -> None:  # type: ignore[no-untyped-def]
    bench = make("o", model(), served=False)
    samples = batch(1)
    start = int(samples.lengths[:16].sum())
    samples.keys[start + 2] = 5000
    with pytest.raises(IdOutOfRangeError, match=r"'checked': id 5000 .* table 'checked'.*train\.parquet"):
        bench.rows.prepare(samples, lease_id=0, epoch=0, create=True, clock=0)


def test_a_push_that_no_ps_takes_ends_in_an_error_not_in_waiting(make) -> None:  # type: ignore[no-untyped-def]
    bench = make("r", model(), served=True)
    pulled = PulledRows({1: np.array([4999, 5000])}, {})
    with pytest.raises(FencedError, match="has no row 5000"):
        bench.push.push(1, pulled, {1: np.zeros((2, 8), np.float32)}, 1.0)


def test_single_valued_batches_share_a_shape_and_give_what_any_batch_gives(make) -> None:  # type: ignore[no-untyped-def]
    for served in (False, True):
        bench = make(f"v{served}", model(), served=served)
        for size in (*range(1, 12), 3):
            none, keys = np.zeros((size, 1), np.float32), np.arange(len(FEATURES) * size) % 40
            lengths = np.ones(len(keys), np.int32)
            plain, flagged = (
                bench.rows.prepare(
                    SampleBatch(0, 0, size, size, 0, none, keys, lengths, none, is_single_valued=flag),
                    lease_id=1,
                    epoch=0,
                    create=True,
                    clock=0,
                )
                for flag in (False, True)
            )
            assert np.array_equal(plain.values, flagged.values) and plain.values.min() >= 0
            assert np.array_equal(plain.lengths, flagged.lengths)
            assert np.array_equal(plain.offsets, flagged.offsets)
            assert plain.length_per_key == flagged.length_per_key == [size] * len(FEATURES)
