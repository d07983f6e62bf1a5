"""The dense exchange of a worker: what the model's copy of the vector holds, and what comes before a commit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.specs import ModelSpec
from elastichost.wire.control import LeaseProgressMsg
from elastichost.wire.sockets import Caller
from elastichost.worker.access.served import RowGradients
from elastichost.worker.channels.channel import DirectoryHolder, pump_nothing
from elastichost.worker.commit.committer import BatchRange, Committer
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.worker.access import test_rows
from tests.worker.parameter_server import ThreadedServers


def test_buffers_spoilt_by_a_skipped_batch_are_brought_in_again(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    spec = describe_dense(model)
    arena = Arena.create(tmp_path, plan_layout(ModelSpec((), (), spec, 3, 1), 7, 1 << 24))
    store = DenseStore(arena)
    initial = initial_vector(model, spec)
    store.load(initial, None, 1, 0, 0)
    flat = FlatDense(model, spec, torch.device("cpu"))
    committer = Committer(DirectoryHolder(Caller(7, test_rows.WORKER)), flat, store, spec.elements, pump_nothing)
    committer.refresh()
    model(torch.full((4, 3), torch.nan))  # its loss is not finite: nothing is committed, no newer version comes
    pushed = np.empty(spec.elements, dtype=np.float32)
    flat.zero_gradients()
    flat.write_push(pushed)
    assert np.isnan(pushed).any()
    committer.forget_vector()
    committer.refresh()
    flat.zero_gradients()
    flat.write_push(pushed)
    assert np.array_equal(pushed[spec.parameters :], initial[spec.parameters :])
    committer.close()
    arena.close()


def test_a_fetch_takes_the_acknowledgements_that_come_before_its_answer(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    spec = describe_dense(model)
    directory = tmp_path / "arena"
    directory.mkdir()
    arena = Arena.create(directory, plan_layout(ModelSpec((), (), spec, 3, 1), 7, 1 << 24))
    DenseStore(arena).load(initial_vector(model, spec), None, 1, 0, 0)
    servers = ThreadedServers(arena, tmp_path)
    flat = FlatDense(model, spec, torch.device("cpu"))
    committer = Committer(servers.holder(test_rows.WORKER), flat, None, spec.elements, pump_nothing)
    committer.fetch()
    flat.zero_gradients()
    for start in (0, 4):
        committer.commit(BatchRange(1, 0, 0, start, start + 4, 4, 0), 1.0)
        committer.fetch()
    committer.settle()
    assert committer.progress() == (LeaseProgressMsg(lease_id=1, stop=8, samples=8, skipped=0),)
    committer.close()
    servers.close()
    arena.close()


def test_rows_are_staged_before_their_commit_and_none_of_the_next_batch_before_it(tmp_path: Path) -> None:
    module = nn.Linear(3, 1)
    spec = msgspec.structs.replace(test_rows.model(), dense=describe_dense(module))
    bench = test_rows.Bench(tmp_path, spec, served=True, servers=2)
    dense = DenseStore(bench.arena)
    dense.load(initial_vector(module, spec.dense), None, 1, 0, 0)
    flat = FlatDense(module, spec.dense, torch.device("cpu"))
    committer = Committer(bench.holder, flat, None, spec.dense.elements, pump_nothing, bench.push)
    committer.fetch()

    def compute(number: int) -> RowGradients:
        assert committer.next_sequence == number
        pulled = bench.rows.prepare(test_rows.batch(number), lease_id=1, epoch=0, create=True, clock=0).pulled
        assert pulled is not None
        flat.zero_gradients()
        return RowGradients(pulled, bench.sums.zeros(number, len(pulled.weights)))

    def commit(number: int, rows: RowGradients) -> None:
        committer.commit(BatchRange(1, 0, 0, 4 * number - 4, 4 * number, 4, 0), 1.0, rows)

    def waiting() -> set[int]:
        """Batches of which some PS has rows staged."""
        return {sequence for applier in bench.servers.appliers.values() for _, _, sequence in applier.waiting()}

    def reached() -> tuple[set[int], int]:
        return waiting(), dense.applied(0, 1).sequence

    commit(1, compute(1))
    commit(2, compute(2))
    assert reached()[1] >= 1, "the batch before is committed before rows leave"
    committer.settle()
    assert reached() == (set(), 2)
    rows = compute(3)
    for session in bench.servers.sessions.values():
        session.shard_map_epoch = 2  # nobody takes what is cut by the first map
    commit(3, rows)
    committer.poll()
    assert reached() == (set(), 2)
    assert committer.next_sequence == 4
    bench.holder.publish(bench.servers.directory(2))
    committer.wait_for_peers(3, 1)  # counts batch 3 as finished, so that is committed by then
    assert reached()[1] == 3
    committer.settle()
    assert reached() == (set(), 3)
    assert committer.progress() == (LeaseProgressMsg(lease_id=1, stop=12, samples=12, skipped=0),)
    committer.close()
    bench.close()


@pytest.mark.parametrize("is_there", [False, True])
def test_mapped_rows_change_when_the_batch_before_is_committed_and_the_model_stays_meanwhile(
    tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """is_there: where the dense vector is, so that it need not travel."""
    module = nn.Linear(3, 1)
    spec = msgspec.structs.replace(test_rows.model(), dense=describe_dense(module))
    bench = test_rows.Bench(tmp_path, spec, served=False, servers=2, hosts=(0, 1))
    dense = DenseStore(bench.arena)
    dense.load(initial_vector(module, spec.dense), None, 1, 0, 0)
    flat = FlatDense(module, spec.dense, torch.device("cpu"))
    mapped = dense if is_there else None
    committer = Committer(bench.holder, flat, mapped, spec.dense.elements, pump_nothing, bench.push)
    committer.fetch()
    came: list[object] = []
    monkeypatch.setattr(committer.channel, "count_received", lambda _, envelope: came.append(envelope.frames))
    for number in (1, 2, 3):
        committer.refresh()
        assert np.array_equal(flat.values, dense.state_copy().vector)
        pulled = bench.rows.prepare(test_rows.batch(number), lease_id=1, epoch=0, create=True, clock=0).pulled
        assert pulled is not None
        flat.zero_gradients()
        loss = module(torch.ones(4, 3)).sum()
        before = flat.values.copy()
        committer.await_commit()
        assert dense.applied(0, 1).sequence == number - 1
        assert committer.next_sequence == number
        assert np.array_equal(flat.values, before), "the backward pass needs what the forward pass had"
        loss.backward()
        rows = RowGradients(pulled, bench.sums.zeros(number, len(pulled.weights)))
        committer.commit(BatchRange(1, 0, 0, 4 * number - 4, 4 * number, 4, 0), 1.0, rows)
    committer.settle()
    assert dense.applied(0, 1).sequence == 3
    assert (not came) == is_there
    committer.close()
    bench.close()
