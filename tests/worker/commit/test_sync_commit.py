"""Sync mode: a step of two micro-batches, with a real PS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.micro_batches import CREW, CREW_INCARNATION, MicroBatch
from elastichost.sharding import rows_per_bucket
from elastichost.worker.access.row_channels import PullChannel, RowCutter
from elastichost.worker.access.served import PulledRows, ServedLookup
from elastichost.worker.access.served_rows import ServedRowPreparer
from elastichost.worker.channels.channel import pump_nothing
from elastichost.worker.commit import sync_commit
from elastichost.worker.commit.step_channel import StepStart
from elastichost.worker.commit.sync_commit import SyncCommit
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.worker.access import test_rows
from tests.worker.parameter_server import ThreadedServers


class SyncBench:
    """A strategy with two PS, and a model that has a buffer."""

    def __init__(self, directory: Path) -> None:
        (directory / "arena").mkdir()
        module = nn.BatchNorm1d(2)
        spec = msgspec.structs.replace(test_rows.model(), dense=describe_dense(module))
        self.arena = Arena.create(directory / "arena", plan_layout(spec, 3, 1 << 24))
        self.dense = DenseStore(self.arena)
        self.dense.load(initial_vector(module, spec.dense), None, 1, 0, 0)
        self.servers = ThreadedServers(self.arena, directory, 2, is_sync=True)
        self.holder = self.servers.holder(test_rows.WORKER)
        self.flat = FlatDense(module, spec.dense, torch.device("cpu"))
        layout = self.arena.layout
        rows = [layout.bucket_capacity(t.index) if t.is_dynamic else rows_per_bucket(t) for t in spec.tables]
        self.lookup = ServedLookup(spec.embeddings, test_rows.CPU)
        cutter = RowCutter(spec, rows)
        self.strategy = SyncCommit(self.holder, pump_nothing, self.flat, spec.dense, cutter, (self.lookup,))
        self.pull = PullChannel(self.holder, spec, name="rows")
        self.rows = ServedRowPreparer(self.arena, test_rows.FEATURES, ("train.parquet",), self.pull)

    def reach(self, step: int) -> StepStart:
        """The dense owner's answer when this step may begin."""
        directory, channel = self.holder.current(), self.strategy.channel
        channel.ask(directory, step)
        while (reached := channel.reached(directory)) is None:
            time.sleep(0.01)
        return reached

    def pulled(self, number: int) -> PulledRows:
        return self.rows.prepare(test_rows.batch(number), lease_id=1, epoch=0, create=True, clock=0).pulled

    def close(self) -> None:
        self.strategy.close()
        self.pull.close()
        self.servers.close()
        self.arena.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SyncBench]:
    made = SyncBench(tmp_path)
    yield made
    made.close()


def task(micro: int) -> MicroBatch:
    return MicroBatch(1, micro, 2, 8, 1, 0, 0, 4 * micro, 4 * micro + 4, -1, False)


def test_a_step_is_committed_with_the_last_of_its_micro_batches(
    bench: SyncBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[str] = []
    monkeypatch.setattr(sync_commit, "crash_point", points.append)
    strategy, directory = bench.strategy, bench.holder.current()
    strategy.begin_step(bench.reach(1))
    before = bench.flat.values.copy()
    for micro in (0, 1):
        strategy.begin()
        strategy.load(bench.pulled(micro))
        bench.lookup._loaded.sums[:] = 1.0  # as a backward pass does
        bench.flat.gradients.fill_(1.0)
        strategy.stage(directory, task(micro), 1.0)
        assert points[-1] == "worker.batch.before_commit"
        assert bench.dense.version() == 1
        strategy.push(directory, task(micro), 1.0, samples=4, loss=0.5)
        assert points[-1] == "worker.batch.after_commit"
    assert len(points) == 4
    reached = bench.reach(2)
    assert (reached.step, reached.samples_applied) == (2, 8)
    assert bench.dense.applied(CREW, CREW_INCARNATION).samples == 8
    assert np.array_equal(bench.flat.values, before), "the model does not change before the step begins"
    assert strategy.samples_applied == 0
    strategy.begin_step(reached)
    assert np.array_equal(bench.flat.values, bench.dense.state_copy().vector)
    assert strategy.samples_applied == 8
    parameters = len(bench.flat.gradients)
    assert (bench.flat.values[:parameters] != before[:parameters]).all()


def test_each_micro_batch_begins_with_the_buffers_of_the_step(bench: SyncBench) -> None:
    bench.strategy.begin_step(bench.reach(1))
    before = bench.flat.values.copy()
    for begins_anew in (bench.strategy.begin, bench.strategy.leave_out):
        bench.flat.values[:] = np.nan  # stands for a forward pass that changes buffers
        bench.flat.gradients.fill_(7.0)
        begins_anew()
        assert np.array_equal(bench.flat.values, before)
        assert not bench.flat.gradients.any()


def test_the_vector_can_be_fetched_between_steps(bench: SyncBench) -> None:
    """This works also when the answer to another request comes first."""
    bench.strategy.channel.ask(bench.holder.current(), 1)
    bench.strategy.fetch()
    assert np.array_equal(bench.flat.values, bench.dense.state_copy().vector)
    assert bench.reach(1).step == 1
