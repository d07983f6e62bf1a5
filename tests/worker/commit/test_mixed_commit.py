"""Mixed access: mapped rows change only after the previous batch is committed, and watermarks record that."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.worker.access.mixed import MixedLookup
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.channels.channel import pump_nothing
from elastichost.worker.commit.dense_transport import HeldParameters, MappedParameters
from elastichost.worker.commit.lease_commit import BatchRange
from elastichost.worker.commit.mixed_commit import MixedCommit
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.worker.access import test_rows


class MixedBench(test_rows.Bench):
    """A strategy with PS on two hosts. is_there: the worker is on the host of the dense vector, which it
    then maps."""

    def __init__(self, directory: Path, *, is_there: bool) -> None:
        self.module = nn.Linear(3, 1)
        spec = msgspec.structs.replace(test_rows.model(), dense=describe_dense(self.module))
        super().__init__(directory, spec, served=False, servers=2, hosts=(0, 1))
        self.dense = DenseStore(self.arena)
        self.dense.load(initial_vector(self.module, spec.dense), None, 1, 0, 0)
        self.flat = FlatDense(self.module, spec.dense, torch.device("cpu"))
        parameters = MappedParameters(self.flat, self.dense) if is_there else HeldParameters(self.flat)
        self.watermarks = Watermarks(self.arena.directory)
        lookups = [lookup for lookup in self.lookups if isinstance(lookup, MixedLookup)]
        assert lookups
        how = (self.flat, parameters, self.push, self.watermarks, lookups)
        self.strategy = MixedCommit(self.holder, pump_nothing, *how)
        self.strategy.fetch()

    def prepare(self, number: int) -> PreparedBatch:
        return self.rows.prepare(test_rows.batch(number), lease_id=1, epoch=0, create=True, clock=0)

    def commit_batch(self, number: int) -> None:
        self.strategy.commit(BatchRange(1, 0, 0, 4 * number - 4, 4 * number, 4, 0, 2.0), 1.0)

    def close(self) -> None:
        self.strategy.close()
        super().close()


@pytest.mark.parametrize("is_there", [False, True])
def test_mapped_rows_change_after_the_previous_commit_and_the_model_does_not_change(
    tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = MixedBench(tmp_path, is_there=is_there)
    strategy, flat, dense = bench.strategy, bench.flat, bench.dense
    came: list[object] = []
    monkeypatch.setattr(strategy.channel, "count_received", lambda _, envelope: came.append(envelope.frames))
    for number in (1, 2, 3):
        strategy.refresh()
        assert np.array_equal(flat.values, dense.state_copy().vector)
        flat.zero_gradients()
        strategy.load(bench.prepare(number), 1.0)
        loss = bench.module(torch.ones(4, 3)).sum()
        before = flat.values.copy()
        assert bench.watermarks.begun(0, 1) == number - 1
        assert strategy.before_backward() >= 0.0
        assert dense.applied(0, 1).sequence == number - 1
        assert bench.watermarks.begun(0, 1) == number, "the watermark says that the batch has begun"
        assert strategy.next_sequence == number
        assert np.array_equal(flat.values, before), "the backward pass needs the values of the forward pass"
        loss.backward()
        bench.commit_batch(number)
    strategy.settle()
    assert dense.applied(0, 1).sequence == 3
    assert (not came) == is_there
    bench.close()


def test_a_batch_has_begun_in_place_only_when_the_one_before_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = MixedBench(tmp_path, is_there=True)
    seen: list[int] = []
    note_begun = bench.watermarks.note_begun

    def note(worker: int, incarnation: int, sequence: int) -> None:
        seen.append(bench.dense.applied(0, 1).sequence)
        note_begun(worker, incarnation, sequence)

    monkeypatch.setattr(bench.watermarks, "note_begun", note)
    for number in (1, 2, 3):
        bench.strategy.load(bench.prepare(number), 1.0)
        bench.strategy.before_backward()
        bench.commit_batch(number)
    assert seen == [0, 1, 2]
    bench.strategy.settle()
    bench.close()


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_shard_map_is_left_behind_when_a_batch_of_a_newer_one_is_over(tmp_path: Path, is_trained: bool) -> None:
    """This holds also for a batch that is left out, because its backward pass may have changed rows."""
    bench = MixedBench(tmp_path, is_there=True)
    strategy = bench.strategy
    strategy.load(bench.prepare(1), 1.0)
    bench.holder.publish(bench.servers.directory(2))
    strategy.before_backward()
    assert strategy.unmapped_epoch(is_idle=False) is None
    if is_trained:
        for session in bench.servers.sessions.values():
            session.shard_map_epoch = 2
        bench.commit_batch(1)
    else:
        strategy.leave_out()
    assert strategy.unmapped_epoch(is_idle=False) == 1, "the batch was prepared by the first map"
    assert strategy.unmapped_epoch(is_idle=False) is None
    assert strategy.unmapped_epoch(is_idle=True) == 2
    strategy.settle()
    bench.close()
