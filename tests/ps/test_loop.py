"""The loop of a PS with its real sockets. The test acts as the supervisor."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.arena.watermarks import Watermarks
from elastichost.config.job import JobSpec
from elastichost.plan import Access, ProcessId
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.loop import ServerLoop
from elastichost.sharding import even_shard_map
from elastichost.wire.applied import NONE_LEFT_OUT, read_applied
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import ControlMessage, FencedMsg, FenceMsg, HelloMsg, ReadyMsg, ShardMapUpdateMsg, StopMsg
from elastichost.wire.data import DensePushMsg
from elastichost.wire.facts import ServerAddress
from elastichost.wire.sockets import ControlServer
from tests.arena.conftest import build_model

JOB_ID, SEED, PARAMETERS, ELEMENTS = 7, 5, 8, 10
SERVER = ProcessId("server", 0, 1)
WORKER, INCARNATION = 3, 2
PATIENCE_S = 30.0
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
Answer = TypeVar("Answer", bound=msgspec.Struct)


def job_of() -> JobSpec:
    return JobSpec.model_validate(
        {
            "job": {"name": "loop", "seed": SEED},
            "model": {"build": "nowhere:build"},
            "data": {"format": "synthetic"},
            "tables": {"default": {"dim": 4}},
            "train": {"optimizer_dense": {"name": "sgd", "lr": 0.5}},
            "checkpoint": {"every_s": 0},
        }
    )


class ServerBench:
    """One PS incarnation in a thread of the test, over an arena whose dense vector is at `version`."""

    def __init__(self, directory: Path, access: Access, version: int) -> None:
        (directory / "arena").mkdir()
        self.run_dir, model = directory, build_model(rows=(100,), elements=ELEMENTS, parameters=PARAMETERS)
        self.arena = Arena.create(directory / "arena", plan_layout(model, SEED, 1 << 24))
        self.watermarks, self.dense = Watermarks(self.arena.directory), DenseStore(self.arena)
        self.dense.load(np.ones(ELEMENTS, np.float32), None, version, 0, 0)
        self._map = even_shard_map(model.tables, (0,), epoch=1)
        self._sockets = tempfile.TemporaryDirectory()  # short: a socket's path has 108 bytes
        address = f"ipc://{self._sockets.name}/control"
        self._control = ControlServer(address, JOB_ID)
        self._arguments = ChildArguments(
            role="server",
            index=SERVER.index,
            incarnation=SERVER.incarnation,
            job_id=JOB_ID,
            control_address=address,
            run_dir=str(directory),
            arena_directory=str(self.arena.directory),
            socket_directory=self._sockets.name,
            cores=(),
            threads=1,
            access=access,
            supervisor_pid=os.getpid(),
        )
        self._thread: threading.Thread | None = None
        self.received: list[msgspec.Struct] = []

    def start(self) -> None:
        """Starts the PS; returns when it has sent Hello and owns all buckets."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._address = self.receive(HelloMsg).address
        self.publish(1, owner=0)
        assert self.receive(ReadyMsg).shard_map_epoch == 1

    def publish(self, epoch: int, owner: int) -> None:
        """Sends a shard map: this PS owns all buckets, PS `owner` the dense vector."""
        frames = [np.array(row, np.uint16) for row in self._map.owners]
        update = ShardMapUpdateMsg(epoch, (ServerAddress(0, 1, self._address, 0),), dense_owner=owner)
        self._control.send(SERVER, update, frames)

    def _run(self) -> None:
        loop = ServerLoop(self._arguments, job_of())
        try:
            loop.run()
        finally:
            loop.close()

    def send(self, message: ControlMessage) -> None:
        self._control.send(SERVER, message)

    def receive(self, kind: type[Answer]) -> Answer:
        """Waits for the next message of this kind from the PS."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s and self._thread is not None and self._thread.is_alive():
            envelope = self._control.receive()
            if envelope is None:
                self._control.poll(0.1)
                continue
            self.received.append(envelope.message)
            if isinstance(envelope.message, kind):
                return envelope.message
        raise AssertionError(f"the PS sent no {kind.__name__}")

    def release(self, sequence: int, incarnation: int = INCARNATION) -> None:
        """Fills the mailbox like a worker with direct access that dies before it sends its message."""
        message = DensePushMsg(
            request=sequence,
            sequence=sequence,
            mailbox=sequence & 1,
            lease_id=4,
            epoch=0,
            unit=2,
            start=8 * sequence,
            stop=8 * sequence + 8,
            samples=8,
            skipped=0,
            want_parameters=False,
        )
        self.watermarks.note_begun(WORKER, incarnation, sequence)
        mailbox = self.dense.mailbox(WORKER, sequence & 1)
        mailbox.vector[:] = 1.0
        mailbox.post(incarnation, sequence, msgspec.msgpack.encode(message))

    def fence(self, incarnation: int = INCARNATION) -> FencedMsg:
        """Fences the worker; returns what the PS reports as committed."""
        self.send(FenceMsg(WORKER, incarnation))
        return self.receive(FencedMsg)

    def close(self) -> None:
        if self._thread is not None:
            self.send(StopMsg())
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()
        self._control.close()
        self.arena.close()
        self._sockets.cleanup()


def sequences(run_dir: Path) -> list[int]:
    """Sequence numbers of the batches in applied.bin, in the order of their commits."""
    return [sequence for sequence in read_applied(run_dir)["sequence"].tolist() if sequence]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ServerBench]:
    made = ServerBench(tmp_path, "direct", version=1)
    yield made
    made.close()


def test_batches_that_a_dead_worker_released_are_committed_when_it_is_fenced(bench: ServerBench) -> None:
    """The worker has changed rows already, and its messages were lost when it died."""
    bench.start()
    bench.release(1)
    bench.release(2)
    applied = bench.fence().applied
    assert (applied.sequence, applied.stop, applied.samples) == (2, 24, 16)
    assert bench.dense.version() == 3
    parameters = bench.dense.state_copy().vector[:PARAMETERS]
    assert parameters.tolist() == [1 - 2 * 0.5] * PARAMETERS
    assert sequences(bench.run_dir) == [1, 2]


def test_batches_of_another_incarnation_and_unreleased_batches_are_not_committed(bench: ServerBench) -> None:
    bench.start()
    bench.release(1, incarnation=INCARNATION - 1)
    bench.watermarks.note_begun(WORKER, INCARNATION, 1)  # the worker died within its first batch
    assert bench.fence().applied.sequence == 0
    assert bench.dense.version() == 1


def test_a_fence_that_comes_twice_commits_once(bench: ServerBench) -> None:
    bench.start()
    bench.release(1)
    assert bench.fence() == bench.fence()
    assert bench.dense.version() == 2


def test_an_older_shard_map_that_comes_late_changes_nothing(bench: ServerBench) -> None:
    bench.start()
    bench.publish(3, owner=0)
    bench.publish(2, owner=1)
    bench.release(1)
    assert bench.fence().applied.sequence == 1, "the PS still owns the dense vector"


def test_only_the_dense_owner_answers_for_a_dead_worker(bench: ServerBench) -> None:
    """Another PS has no record of the commits. If the supervisor used its answer, samples would be trained twice."""
    bench.start()
    bench.release(1)
    bench.publish(2, owner=1)
    assert bench.receive(ReadyMsg).shard_map_epoch == 2
    bench.send(FenceMsg(WORKER, INCARNATION))
    bench.publish(3, owner=0)
    assert bench.receive(ReadyMsg).shard_map_epoch == 3
    assert not [message for message in bench.received if isinstance(message, FencedMsg)]
    assert bench.dense.version() == 1, "the PS did not commit either"
    assert bench.fence().applied.sequence == 1


def test_a_new_dense_owner_cuts_off_records_of_batches_that_were_never_committed(tmp_path: Path) -> None:
    """The previous run wrote five records and was killed; this run begins with a checkpoint after three batches."""
    log = AppliedLog(tmp_path)
    for number in range(1, 6):
        log.write(number, (WORKER, INCARNATION, number, 4, 0, 2, 8 * number, 8 * number + 8, 8, 0, 0.5, NONE_LEFT_OUT))
    log.close()
    bench = ServerBench(tmp_path, "direct", version=4)
    bench.start()
    assert sequences(tmp_path) == [1, 2, 3]
    bench.release(1, incarnation=INCARNATION + 1)
    assert bench.fence(INCARNATION + 1).applied.sequence == 1
    assert sequences(tmp_path) == [1, 2, 3, 1], "the next commit follows the kept records"
    bench.close()
