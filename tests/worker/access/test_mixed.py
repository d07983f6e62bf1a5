"""Mixed access: rows of the worker's host are used in the arena, all others are pulled. Training gives the same rows
as with direct access."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.datasets.api import SampleBatch
from elastichost.specs import Pooling
from elastichost.worker.access.rows import PreparedBatch
from tests.worker.access.test_rows import FEATURES, Bench, batch, model

HOSTS = (0, 1, 1, 0)
ALL = tuple((table, bucket) for table, buckets in enumerate((16, 5, 1)) for bucket in range(buckets))


class Sequences(Bench):
    """A bench whose collections give a vector for every id."""

    def look_up(self, features: KeyedJaggedTensor) -> torch.Tensor:
        return torch.cat([part.flatten() for lookup in self.lookups for part in lookup.sequence(features)])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made: list[Bench] = []

    def create(name: str, hosts: tuple[int, ...] = (), kind: type[Bench] = Bench, **settings: object) -> Bench:
        spec = model(**settings)  # type: ignore[arg-type]
        made.append(kind(tmp_path / name, spec, served=False, servers=max(1, len(hosts)), hosts=hosts))
        return made[-1]

    yield create
    for bench in made:
        bench.close()


def prepare(bench: Bench, samples: SampleBatch, *, create: bool = True) -> PreparedBatch:
    return bench.rows.prepare(samples, lease_id=1, epoch=0, create=create, clock=0)


@pytest.mark.parametrize("hosts", [HOSTS, (1, 1), (0, 0), (0, 1, 2)])
@pytest.mark.parametrize("pooling", ["sum", "mean", "none"])
def test_trains_as_if_all_rows_were_mapped(make, hosts: tuple[int, ...], pooling: Pooling) -> None:  # type: ignore[no-untyped-def]
    """With shared tables, bags of mapped and pulled ids, and features with only mapped or only pulled ids."""
    kind = Sequences if pooling == "none" else Bench
    direct, mixed = make("d", kind=kind, pooling=pooling), make("m", hosts, kind, pooling=pooling)
    for step in range(6):
        torch.testing.assert_close(mixed.train(batch(step)), direct.train(batch(step)), atol=1e-5, rtol=1e-4)


def test_trains_in_bfloat16_as_in_float32_but_for_rounding(make) -> None:  # type: ignore[no-untyped-def]
    exact, rounded = make("f"), make("b", HOSTS, precision="bfloat16")
    for step in range(6):
        torch.testing.assert_close(rounded.train(batch(step)), exact.train(batch(step)), atol=0.1, rtol=0.05)


def test_only_rows_of_other_hosts_are_pulled(make) -> None:  # type: ignore[no-untyped-def]
    mixed = make("m", HOSTS)
    prepared = prepare(mixed, batch(0))
    owners, firsts = mixed.servers.directory(1).owners, prepared.pulled.bounds
    for table, capacity in enumerate((mixed.arena.layout.bucket_capacity(0), 1000, 100)):
        rows = prepared.pulled.rows[firsts[table] : firsts[table + 1]]
        assert {HOSTS[owners[table][row // capacity]] for row in rows.tolist()} <= {1}
    mapped = prepared.values[prepared.values >= 0]
    assert len(mapped) and 0 < len(prepared.pulled.rows) < len(np.unique(batch(0).keys))
    assert prepared.mapped_by == 1


def test_a_batch_whose_rows_are_all_mapped_sends_no_pull_and_can_be_committed(make) -> None:  # type: ignore[no-untyped-def]
    mixed = make("m", (0, 0))
    mixed.train(batch(0))
    mixed.pull.traffic.sent = 0
    pooled = mixed.train(batch(0))  # all ids are known now
    assert pooled.any() and mixed.pull.traffic.sent == 0 and mixed.push.traffic.sent == 0


def test_rows_that_a_new_map_lists_as_served_are_pulled(make) -> None:  # type: ignore[no-untyped-def]
    """Training gives the same rows as before, with messages instead of in-place updates."""
    direct, mixed = make("d"), make("m", HOSTS)
    for step, served in enumerate((ALL[:5], ALL, ())):
        epoch = step + 2
        torch.testing.assert_close(mixed.train(batch(step)), direct.train(batch(step)), atol=1e-5, rtol=1e-4)
        for session in mixed.servers.sessions.values():
            session.shard_map_epoch = epoch
        mixed.holder.publish(mixed.servers.directory(epoch, served))
        prepared = prepare(mixed, batch(step))
        assert prepared.mapped_by == epoch
        assert (prepared.values < 0).all() == (served == ALL)


def test_evaluation_creates_nothing_and_leaves_unknown_ids_out(make) -> None:  # type: ignore[no-untyped-def]
    mixed = make("m", HOSTS)
    unknown = prepare(mixed, batch(1), create=False)
    assert unknown.length_per_key[0] == unknown.length_per_key[2] == 0
    assert unknown.length_per_key[1] == batch(1).lengths.reshape(len(FEATURES), -1)[1].sum()
    assert int(unknown.lengths.sum()) == len(unknown.values) == unknown.offsets[-1]
    again = prepare(mixed, batch(1))
    assert again.length_per_key == batch(1).lengths.reshape(len(FEATURES), -1).sum(axis=1).tolist()


def test_ids_are_admitted_at_their_second_batch_on_every_host(make) -> None:  # type: ignore[no-untyped-def]
    mixed = make("m", HOSTS, admit_after=2)
    first, second = (prepare(mixed, batch(1)).length_per_key for _ in range(2))
    assert (first[0], first[2]) == (0, 0)
    assert (second[0], second[2]) == tuple(batch(1).lengths.reshape(len(FEATURES), -1)[[0, 2]].sum(axis=1))
