"""Direct access: the watermark is stored before rows change, and the mailbox is filled before the message leaves."""

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
from elastichost.arena.watermarks import Watermarks
from elastichost.plan import ProcessId
from elastichost.ps.session import Session
from elastichost.specs import ModelSpec
from elastichost.wire.control import LeaseProgressMsg
from elastichost.wire.data import DensePushMsg
from elastichost.wire.sockets import Caller, DataClient
from elastichost.worker.channels.channel import DirectoryHolder, pump_nothing
from elastichost.worker.commit import direct_commit, lease_commit
from elastichost.worker.commit.direct_commit import DirectCommit
from elastichost.worker.commit.lease_commit import BatchRange
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from tests.worker.access import test_rows
from tests.worker.parameter_server import ThreadedServers


class DirectBench:
    """A strategy on an arena, with or without a PS."""

    def __init__(self, directory: Path, model: nn.Module, *, has_server: bool) -> None:
        arena_directory = directory / "arena"
        arena_directory.mkdir()
        self.spec = describe_dense(model)
        self.arena = Arena.create(arena_directory, plan_layout(ModelSpec((), (), self.spec, 3, 1), 7, 1 << 24))
        self.dense, self.watermarks = DenseStore(self.arena), Watermarks(arena_directory)
        self.initial = initial_vector(model, self.spec)
        self.dense.load(self.initial, None, 1, 0, 0)
        self.flat = FlatDense(model, self.spec, torch.device("cpu"))
        self.servers = ThreadedServers(self.arena, directory) if has_server else None
        worker = test_rows.WORKER
        holder = DirectoryHolder(Caller(7, worker)) if self.servers is None else self.servers.holder(worker)
        self.strategy = DirectCommit(holder, pump_nothing, self.flat, self.dense, self.watermarks, ())

    def pushed(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """The vector that a push would have now."""
        vector = np.empty(self.spec.elements, dtype=np.float32)
        self.flat.zero_gradients()
        self.flat.write_push(vector)
        return vector

    def commit(self, number: int) -> None:
        self.strategy.commit(BatchRange(1, 0, 0, 4 * number - 4, 4 * number, 4, 0, 2.0), 1.0)

    def close(self) -> None:
        self.strategy.close()
        if self.servers is not None:
            self.servers.close()
        self.arena.close()


def test_buffers_spoilt_by_a_skipped_batch_are_restored(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    bench = DirectBench(tmp_path, model, has_server=False)
    bench.strategy.refresh()
    model(torch.full((4, 3), torch.nan))  # its loss is not finite: nothing is committed, so there is no newer version
    assert np.isnan(bench.pushed()).any()
    bench.strategy.leave_out()
    bench.strategy.refresh()
    parameters = bench.spec.parameters
    assert np.array_equal(bench.pushed()[parameters:], bench.initial[parameters:])
    bench.close()


def test_the_watermark_is_stored_before_a_batch_may_change_rows(tmp_path: Path) -> None:
    bench = DirectBench(tmp_path, nn.Linear(3, 1), has_server=True)
    for number in (1, 2, 3):
        assert bench.watermarks.begun(0, 1) == number - 1
        assert bench.strategy.before_backward() >= 0.0
        assert bench.watermarks.begun(0, 1) == number == bench.strategy.next_sequence
        bench.commit(number)
    bench.strategy.settle()
    assert bench.dense.applied(0, 1).sequence == 3
    assert bench.strategy.progress() == (LeaseProgressMsg(lease_id=1, stop=12, samples=12, skipped=0),)
    bench.close()


def test_a_worker_tells_a_new_dense_owner_its_place_on_the_clock(tmp_path: Path) -> None:
    """Regression: the successor took all workers for level, so a worker could run ahead by the staleness once more."""
    bench = DirectBench(tmp_path, nn.Linear(3, 1), has_server=True)
    assert bench.servers is not None
    bench.strategy.wait_for_peers(-1, 4)  # answered at once: the service is there
    (service,) = bench.servers.services
    service._session.advanced(ProcessId("worker", 1, 1), b"other", 1, 100, 4)
    bench.strategy.wait_for_peers(2, 4)  # it joins level with the other
    assert service._session.slowest() == 100
    service._session = Session(shard_map_epoch=1)
    bench.strategy.wait_for_peers(5, 4)
    assert service._session.slowest() == 103
    bench.close()


def test_gradients_and_message_lie_in_the_mailbox_before_the_message_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A released batch is committed even if its message is lost with its sender."""
    bench = DirectBench(tmp_path, nn.Linear(3, 1), has_server=True)
    steps: list[str] = []
    for module in (direct_commit, lease_commit):
        monkeypatch.setattr(module, "crash_point", steps.append)
    send = DataClient.send

    def look_and_send(client: DataClient, message: object, frames: object = ()) -> None:
        assert isinstance(message, DensePushMsg)
        assert bench.dense.posted(0, 1)[-1] == msgspec.msgpack.encode(message)
        assert frames == () and not message.want_parameters
        assert message.loss_sum == 2.0
        mailbox = bench.dense.mailbox(0, message.mailbox)
        assert (mailbox.vector == float(message.sequence)).all()
        steps.append("sent")
        send(client, message, ())

    monkeypatch.setattr(DataClient, "send", look_and_send)
    halves = set()
    for number in (1, 2):
        monkeypatch.setattr(bench.flat, "write_push", lambda out, number=number: out.fill(float(number)))
        bench.commit(number)
        halves.add(number % 2)
    before, after = ["worker.batch.before_commit", "worker.batch.posted"], ["worker.batch.after_commit"]
    assert steps == 2 * [*before, "sent", *after]
    assert halves == {0, 1}
    bench.strategy.settle()
    assert bench.dense.posted(0, 1) == ()
    bench.close()


def test_two_batches_are_on_the_way_and_the_third_waits(tmp_path: Path) -> None:
    bench = DirectBench(tmp_path, nn.Linear(3, 1), has_server=True)
    for number in range(1, 6):
        bench.commit(number)
        assert bench.dense.applied(0, 1).sequence >= number - 2
    bench.strategy.settle()
    assert bench.strategy.samples_applied == bench.dense.samples_applied() == 20
    bench.close()


def test_a_push_is_sent_again_until_the_ps_owns_the_dense_vector(tmp_path: Path) -> None:
    bench = DirectBench(tmp_path, nn.Linear(3, 1), has_server=True)
    bench.commit(1)
    bench.strategy.settle()
    assert bench.servers is not None
    (service,) = bench.servers.services
    service.is_dense_owner = False
    bench.commit(2)
    bench.strategy.poll()
    assert bench.dense.applied(0, 1).sequence == 1
    service.is_dense_owner = True
    bench.strategy.settle()
    assert bench.dense.applied(0, 1).sequence == 2
    bench.close()
