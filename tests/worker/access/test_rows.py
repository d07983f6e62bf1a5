"""Preparing rows: direct and served access find the same rows and train them to the same values."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.datasets.api import SampleBatch
from elastichost.errors import IdOutOfRangeError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.sharding import rows_per_bucket
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, Pooling, Precision, RowOptimizerSpec, TableSpec
from elastichost.wire.data import PushMsg
from elastichost.worker.access.direct import DirectLookup
from elastichost.worker.access.direct_rows import DirectRowPreparer
from elastichost.worker.access.mixed import MixedLookup
from elastichost.worker.access.mixed_rows import MixedRowPreparer
from elastichost.worker.access.row_channels import PullChannel, PushChannel, RowCutter
from elastichost.worker.access.rows import PreparedBatch, RowPreparer
from elastichost.worker.access.served import NOTHING_PULLED, GradientSums, PulledRows, RowGradients, ServedLookup
from elastichost.worker.access.served_rows import ServedRowPreparer
from elastichost.worker.channels.channel import FencedError, StoppedError, pump_nothing
from elastichost.worker.channels.routing import Directory
from tests.worker.channels.test_exchange import push
from tests.worker.parameter_server import ThreadedServers

FEATURES = ("dynamic", "checked", "shared", "hashed")
CPU = torch.device("cpu")
WORKER = ProcessId("worker", 0, 1)


def model(admit_after: int = 1, precision: Precision = "float32", pooling: Pooling = "sum") -> ModelSpec:
    tables = (
        TableSpec("items", 0, ("dynamic", "shared"), "int", rows=0, admit_after=admit_after),
        TableSpec("checked", 1, ("checked",), "int", rows=5000),
        TableSpec("hashed", 2, ("hashed",), "string", rows=100),
    )
    embeddings = tuple(
        EmbeddingSpec(name, i, table, "", "bag", features, dim, pooling, RowOptimizerSpec(), -0.5, 0.5, precision)
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
    keys[0] %= 50  # ids repeat within and between batches; the third feature has the same ids
    none = np.zeros((size, 1), dtype=np.float32)
    return SampleBatch(0, 0, size, size, 0, none, np.concatenate(keys), lengths.ravel(), none)


class Bench:
    """One arena with its PS, and the preparer and lookups of one kind of access: mixed if the PS are on several hosts.
    The worker is on host 0."""

    def __init__(
        self, directory: Path, spec: ModelSpec, *, served: bool, servers: int, hosts: tuple[int, ...] = ()
    ) -> None:
        arena_directory = directory / "arena"
        arena_directory.mkdir(mode=0o700, parents=True)
        self.arena = Arena.create(arena_directory, plan_layout(spec, 3, 1 << 24))
        self.servers = ThreadedServers(self.arena, directory, servers, hosts)
        holder = self.holder = self.servers.holder(WORKER)
        self.pull = PullChannel(holder, spec)
        self.pulls = served or bool(hosts)
        source = (self.arena, FEATURES, ("train.parquet",), self.pull)
        self.rows: RowPreparer = DirectRowPreparer(*source)
        if self.pulls:
            self.rows = ServedRowPreparer(*source) if served else MixedRowPreparer(*source, 0)
        bucket_rows = [
            self.arena.layout.bucket_capacity(t.index) if t.is_dynamic else rows_per_bucket(t) for t in spec.tables
        ]
        self.push = PushChannel(holder, RowCutter(spec, bucket_rows), pump_nothing)
        deep, wide = spec.embeddings[:3], spec.embeddings[3:]
        kind = MixedLookup if hosts else DirectLookup
        self.lookups: list[ServedLookup | DirectLookup] = [
            ServedLookup(some, CPU, spec.sequence_features) if served else kind(self.arena, some, CPU)
            for some in (deep, wide)
        ]
        self.sequence = 0
        self.sums = GradientSums()

    def forward(self, prepared: PreparedBatch, sums: npt.NDArray[np.float32] | None) -> torch.Tensor:
        kjt = KeyedJaggedTensor(
            keys=list(FEATURES),
            values=torch.from_numpy(prepared.values),
            lengths=torch.from_numpy(prepared.lengths),
            offsets=torch.from_numpy(prepared.offsets),
        )
        for lookup in self.lookups:
            if isinstance(lookup, (ServedLookup, MixedLookup)):
                lookup.load(prepared.pulled, sums)
        return self.look_up(kjt)

    def look_up(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """The results of all lookups, in one tensor."""
        return torch.cat([lookup.pooled(features) for lookup in self.lookups], dim=1)

    def train(self, samples: SampleBatch) -> torch.Tensor:
        prepared = self.rows.prepare(samples, lease_id=1, epoch=0, create=True, clock=0)
        self.sequence += 1
        pulled = prepared.pulled
        sums = self.sums.zeros(self.sequence, len(pulled.weights)) if self.pulls else None
        pooled = self.forward(prepared, sums)
        (pooled.square().sum() + pooled.sum()).backward()
        if sums is not None:
            self.push.begin(RowGradients(pulled, sums), push(self.sequence))
            assert self.push.wait().sequence == self.sequence
            self.commit()
        return pooled.detach()

    def commit(self) -> None:
        """Settles the batch as if a dense owner without rows had committed it."""
        self.push.confirm(self.sequence, -1)
        self.push.settle()

    def close(self) -> None:
        self.pull.close()
        self.push.close()
        self.servers.close()
        self.arena.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made: list[Bench] = []

    def create(name: str, spec: ModelSpec, *, served: bool, servers: int = 1, hosts: tuple[int, ...] = ()) -> Bench:
        made.append(Bench(tmp_path / name, spec, served=served, servers=servers, hosts=hosts))
        return made[-1]

    yield create
    for bench in made:
        bench.close()


@pytest.mark.parametrize(("served", "hosts"), [(False, ()), (True, ()), (False, (0, 1))])
def test_only_served_and_mixed_access_pull_rows(make, served: bool, hosts: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    bench = make("a", model(), served=served, servers=max(1, len(hosts)), hosts=hosts)
    prepared = bench.rows.prepare(batch(0), lease_id=1, epoch=0, create=True, clock=0)
    assert (prepared.pulled is NOTHING_PULLED) == (not served and not hosts)
    assert prepared.mapped_by == (1 if hosts else 0)


@pytest.mark.parametrize("servers", [1, 3])
def test_served_training_equals_direct_training(make, servers: int) -> None:  # type: ignore[no-untyped-def]
    direct, served = make("d", model(), served=False), make("s", model(), served=True, servers=servers)
    for step in range(6):
        torch.testing.assert_close(direct.train(batch(step)), served.train(batch(step)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("served", [False, True])
def test_training_in_bfloat16_is_that_in_float32_but_for_rounding(make, served: bool) -> None:  # type: ignore[no-untyped-def]
    exact = make("f", model(), served=served)
    rounded = make("b", model(precision="bfloat16"), served=served)
    for step in range(6):
        expected, pooled = exact.train(batch(step)), rounded.train(batch(step))
        # A bfloat16 row has 8 significant bits; a bag sums a handful of rows.
        torch.testing.assert_close(pooled, expected, atol=0.1, rtol=0.05)
        assert not torch.equal(pooled, expected)
    assert rounded.arena.rows_view(1).dtype == np.uint16
    assert rounded.arena.rows_view(0).nbytes * 2 == exact.arena.rows_view(0).nbytes


@pytest.mark.parametrize("admit_after", [1, 2])
def test_several_servers_give_the_rows_and_weights_of_one(make, admit_after: int) -> None:  # type: ignore[no-untyped-def]
    one = make("one", model(admit_after), served=True)
    several = make("several", model(admit_after), served=True, servers=3)
    for step in range(3):
        pulled = []
        for bench in (one, several):
            prepared = bench.rows.prepare(batch(step), lease_id=0, epoch=0, create=True, clock=0)
            pulled.append(prepared.pulled)
        assert np.array_equal(pulled[0].bounds, pulled[1].bounds)
        assert np.array_equal(pulled[0].rows, pulled[1].rows)
        assert np.array_equal(pulled[0].weights, pulled[1].weights)


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


@pytest.mark.parametrize(
    ("served", "servers", "hosts"), [(False, 1, ()), (False, 2, ()), (True, 1, ()), (True, 2, ()), (False, 2, (0, 1))]
)
def test_ids_without_a_row_because_memory_is_full_are_counted_and_others_are_not(  # type: ignore[no-untyped-def]
    make, served: bool, servers: int, hosts: tuple[int, ...]
) -> None:
    """Every occurrence of an id without memory counts; ids that are not admitted yet do not count."""

    def prepare() -> PreparedBatch:
        return bench.rows.prepare(batch(1), lease_id=0, epoch=0, create=True, clock=0)

    bench = make("m", model(admit_after=2), served=served, servers=servers, hosts=hosts)
    dynamic = int(batch(1).lengths.reshape(4, -1)[[0, 2]].sum())
    sighted = prepare()
    assert (sighted.without_row, int(sighted.lengths.sum())) == (0, len(batch(1).keys) - dynamic)
    bench.arena.board.begin_anew(is_limited=True)
    bench.arena.allowance = bench.arena.board.allowance(0)
    bench.arena.board.leave_out(is_full=True)
    full = prepare()
    assert (full.without_row, int(full.lengths.sum())) == (dynamic, len(batch(1).keys) - dynamic)
    bench.arena.board.begin_anew(is_limited=False)
    bench.arena.board.leave_out(is_full=False)
    freed = prepare()
    assert (freed.without_row, int(freed.lengths.sum())) == (0, len(batch(1).keys))


def test_an_id_out_of_range_is_named(make) -> None:  # type: ignore[no-untyped-def]
    bench = make("o", model(), served=False)
    samples = batch(1)
    start = int(samples.lengths[:16].sum())
    samples.keys[start + 2] = 5000
    with pytest.raises(IdOutOfRangeError, match=r"'checked': id 5000 .* table 'checked'.*train\.parquet"):
        bench.rows.prepare(samples, lease_id=0, epoch=0, create=True, clock=0)


def test_a_push_that_is_refused_for_good_is_an_error_and_not_waited_for(make) -> None:  # type: ignore[no-untyped-def]
    bench = make("r", model(), served=True)
    pulled = PulledRows(np.array([4999, 5000]), np.array([0, 0, 2, 2]), np.zeros(16, np.float32), np.array([0]), 0)
    bench.push.begin(RowGradients(pulled, pulled.weights), push(1))
    with pytest.raises(FencedError, match="table 'checked' has no row 5000"):
        bench.push.wait()


def test_a_push_cut_by_an_old_shard_map_is_cut_anew_and_applied_once(make) -> None:  # type: ignore[no-untyped-def]
    """One PS has the next shard map before the worker does; by then the other PS have staged their parts."""
    plain, served = make("p", model(), served=True), make("s", model(), served=True, servers=3)
    for bench in (plain, served):
        bench.train(batch(0))
        prepared = bench.rows.prepare(batch(1), lease_id=1, epoch=0, create=True, clock=0)
        bench.sequence += 1
        sums = bench.sums.zeros(bench.sequence, len(prepared.pulled.weights))
        bench.forward(prepared, sums).square().sum().backward()
        gradients = RowGradients(prepared.pulled, sums)
        if bench is plain:
            bench.push.begin(gradients, push(bench.sequence))
            bench.push.wait()
            bench.commit()
            continue
        bench.servers.sessions[1].shard_map_epoch = 2
        bench.push.begin(gradients, push(bench.sequence))
        with pytest.raises(ProtocolError, match="before those of"):
            bench.push.begin(gradients, push(bench.sequence + 1))
        waits = itertools.count()

        def learn(timeout_s: float = 0.0, bench: Bench = bench, waits: Iterator[int] = waits) -> None:
            if next(waits) == 2:  # the new shard map arrives on the control socket while the push waits
                for session in bench.servers.sessions.values():
                    session.shard_map_epoch = 2
                bench.holder.publish(bench.servers.directory(2))

        bench.push._pump = learn
        assert bench.push.wait().sequence == bench.sequence
        assert bench.push.is_empty and bench.push.poll() is None
        bench.commit()
        assert bench.push.is_settled
    torch.testing.assert_close(served.train(batch(1)), plain.train(batch(1)), atol=1e-6, rtol=1e-5)


def test_a_push_is_sent_again_under_its_number_so_that_a_late_answer_counts(make) -> None:  # type: ignore[no-untyped-def]
    """Regression: a push that needs longer than the interval was cut anew each time, and its answers came too late."""
    bench = make("t", model(), served=True, servers=2)
    bench.train(batch(0))
    gate, seen = threading.Event(), list[tuple[int, int]]()
    for number, service in enumerate(bench.servers.services):

        def slow(peer: bytes, envelope: Any, number: int = number, handle: Any = service.handle) -> Any:
            if isinstance(envelope.message, PushMsg):
                seen.append((number, envelope.message.request))
                gate.wait(30)
            return handle(peer, envelope)

        service.handle = slow
    prepared = bench.rows.prepare(batch(1), lease_id=1, epoch=0, create=True, clock=0)
    bench.sequence += 1
    sums = np.zeros_like(prepared.pulled.weights)
    bench.push.begin(RowGradients(prepared.pulled, sums), push(bench.sequence))
    due, pumps = iter([True, True, True]), itertools.count()
    bench.push._resend = SimpleNamespace(is_due=lambda now_s: next(due, False))

    def pump(timeout_s: float = 0.0) -> None:
        if next(pumps) == 3:
            gate.set()

    bench.push._pump = pump
    assert bench.push.wait().sequence == bench.sequence
    bench.commit()
    assert len(seen) >= 2
    assert len(set(seen)) == 2, "one number for each PS"


def test_a_stopped_worker_does_not_wait_for_its_push(make) -> None:  # type: ignore[no-untyped-def]
    bench = make("t", model(), served=True)
    bench.train(batch(0))
    prepared = bench.rows.prepare(batch(1), lease_id=1, epoch=0, create=True, clock=0)
    bench.servers.sessions[0].shard_map_epoch = 2
    sums = np.zeros_like(prepared.pulled.weights)
    bench.push.begin(RowGradients(prepared.pulled, sums), push(2))
    bench.push._pump = lambda timeout_s=0.0: bench.holder.stop()
    with pytest.raises(StoppedError):
        bench.push.wait()


def test_single_valued_batches_share_a_shape_and_give_the_same_arrays_as_others(make) -> None:  # type: ignore[no-untyped-def]
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


def test_rows_of_buckets_that_were_lost_since_they_were_pulled_get_no_gradient(make) -> None:  # type: ignore[no-untyped-def]
    """The row numbers of such a bucket belong to other ids now. All other rows are pushed."""
    bench = make("l", model(), served=True, servers=2)
    prepared = bench.rows.prepare(batch(0), lease_id=1, epoch=0, create=True, clock=0)
    pulled, directory = prepared.pulled, bench.holder.current()
    assert pulled.epoch == directory.epoch
    rows = bench.arena.layout.bucket_capacity(0)
    bucket = int(pulled.rows[0]) // rows
    lost = dataclasses.replace(directory, epoch=directory.epoch + 1, made_anew=((0, bucket, directory.epoch + 1),))
    cutter = RowCutter(bench.arena.model, [rows, rows_per_bucket(bench.arena.model.tables[1]), 100])
    sums = np.arange(len(pulled.weights), dtype=np.float32)

    def pushed(directory: Directory) -> set[tuple[int, int]]:
        parts = cutter.cut(RowGradients(pulled, sums), directory)
        bounds = [np.cumsum([0, *counts]) for _, counts, _ in parts]
        return {
            (table, int(row))
            for (_, _, frames), bound in zip(parts, bounds, strict=True)
            for table in range(3)
            for row in np.asarray(frames[0])[bound[table] : bound[table + 1]]
        }

    gone = {(table, row) for table, row in pushed(directory) if table == 0 and row // rows == bucket}
    assert gone and pushed(lost) == pushed(directory) - gone
    later = dataclasses.replace(pulled, epoch=directory.epoch + 1)
    assert len(cutter.cut(RowGradients(later, sums), lost)) == len(cutter.cut(RowGradients(pulled, sums), directory))
