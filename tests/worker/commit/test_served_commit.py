"""Served access: the order of staging, commits and applied rows."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from elastichost.arena.dense.store import DenseStore
from elastichost.wire.control import LeaseProgressMsg
from elastichost.wire.data import DensePushMsg
from elastichost.worker.channels.channel import pump_nothing
from elastichost.worker.commit.dense_transport import ReceivedParameters
from elastichost.worker.commit.lease_commit import BatchRange
from elastichost.worker.commit.served_commit import ServedCommit
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.worker.access import test_rows


class ServedBench(test_rows.Bench):
    """A strategy with two PS. The first one owns the dense vector."""

    def __init__(self, directory: Path) -> None:
        module = nn.Linear(3, 1)
        spec = msgspec.structs.replace(test_rows.model(), dense=describe_dense(module))
        super().__init__(directory, spec, served=True, servers=2)
        self.dense = DenseStore(self.arena)
        self.dense.load(initial_vector(module, spec.dense), None, 1, 0, 0)
        self.flat = FlatDense(module, spec.dense, torch.device("cpu"))
        parameters = ReceivedParameters(self.flat)
        self.strategy = ServedCommit(self.holder, pump_nothing, self.flat, parameters, self.push, ())
        self.strategy.fetch()

    def load(self, number: int) -> None:
        assert self.strategy.next_sequence == number
        prepared = self.rows.prepare(test_rows.batch(number), lease_id=1, epoch=0, create=True, clock=0)
        self.flat.zero_gradients()
        self.strategy.load(prepared, 1.0)

    def commit_batch(self, number: int) -> None:
        self.strategy.commit(BatchRange(1, 0, 0, 4 * number - 4, 4 * number, 4, 0, 2.0), 1.0)

    def waiting(self) -> set[int]:
        """Numbers of the batches of which a PS has rows staged."""
        return {sequence for applier in self.servers.appliers.values() for _, _, sequence in applier.waiting()}

    def reached(self) -> tuple[set[int], int]:
        return self.waiting(), self.dense.applied(0, 1).sequence

    def close(self) -> None:
        self.strategy.close()
        super().close()


def test_rows_are_staged_before_their_commit_and_none_of_the_next_batch_before_it(tmp_path: Path) -> None:
    bench = ServedBench(tmp_path)
    strategy = bench.strategy
    for number in (1, 2):
        bench.load(number)
        bench.commit_batch(number)
    assert bench.reached()[1] >= 1, "the previous batch is committed before the rows leave"
    strategy.settle()
    assert bench.reached() == (set(), 2)
    bench.load(3)
    for session in bench.servers.sessions.values():
        session.shard_map_epoch = 2  # no PS accepts rows that are cut by the first map
    bench.commit_batch(3)
    strategy.poll()
    assert bench.reached() == (set(), 2)
    assert strategy.next_sequence == 4
    bench.holder.publish(bench.servers.directory(2))
    strategy.wait_for_peers(3, 1)  # batch 3 counts as finished, so it is committed before the call returns
    assert bench.reached()[1] == 3
    strategy.settle()
    assert bench.reached() == (set(), 3)
    assert strategy.progress() == (LeaseProgressMsg(lease_id=1, stop=12, samples=12, skipped=0),)
    bench.close()


def test_a_commit_while_the_next_batch_is_computed_does_not_change_the_model(tmp_path: Path) -> None:
    bench = ServedBench(tmp_path)
    bench.load(1)
    bench.commit_batch(1)
    bench.load(2)
    before = bench.flat.values.copy()
    deadline_s = time.monotonic() + 30.0
    while bench.dense.applied(0, 1).sequence < 1:
        assert bench.strategy.before_backward() == 0.0
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert np.array_equal(bench.flat.values, before), "the backward pass needs the values of the forward pass"
    assert bench.strategy.next_sequence == 2
    bench.commit_batch(2)
    bench.strategy.settle()
    assert bench.reached() == (set(), 2)
    assert np.array_equal(bench.flat.values, bench.dense.state_copy().vector), "parameters come with the answers"
    bench.close()


def test_the_rows_of_a_refused_commit_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows were staged under a shard map that is outdated when the commit arrives. Rows and commit are sent again,
    and count once."""
    bench = ServedBench(tmp_path)
    cut: list[int] = []
    again = bench.push.again

    def cut_again(commit: DensePushMsg) -> None:
        cut.append(commit.sequence)
        assert commit.loss_sum == 2.0
        again(commit)

    monkeypatch.setattr(bench.push, "again", cut_again)
    bench.load(1)
    bench.commit_batch(1)
    while not all(applier.waiting() for applier in bench.servers.appliers.values()):
        time.sleep(0.01)
    for session in bench.servers.sessions.values():
        session.shard_map_epoch = 2
    while not bench.push.is_empty:
        bench.strategy.before_backward()  # the commit leaves: all rows are staged
    assert bench.reached() == ({1}, 0)
    bench.holder.publish(bench.servers.directory(2))
    bench.strategy.settle()
    assert cut == [1]
    assert bench.reached() == (set(), 1)
    assert bench.strategy.progress() == (LeaseProgressMsg(lease_id=1, stop=4, samples=4, skipped=0),)
    bench.close()
