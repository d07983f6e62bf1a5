"""Steps at the dense owner are committed once, by pushes under the present shard map; waiting workers are answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.errors import DiskFullError, ProtocolError
from elastichost.micro_batches import CREW, CREW_INCARNATION
from elastichost.plan import ProcessId
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.frames import Outgoing
from elastichost.ps.session import Session
from elastichost.ps.sync.step_service import StepService
from elastichost.wire.applied import read_applied
from elastichost.wire.data import DensePushedMsg, DensePushMsg, PushMsg, RetryMsg, StepAskMsg, StepReachedMsg
from tests.arena.conftest import build_model
from tests.full_disk import file_limit

PARAMETERS, ELEMENTS = 8, 10
WORKER = ProcessId("worker", 3, 1)


class Applier:
    """Records the steps that it must settle."""

    def __init__(self) -> None:
        self.settled: list[int] = []

    def settle_steps(self, committed: int) -> None:
        self.settled.append(committed)


class Bench:
    """The service over a dense vector at version 1, shard map 5."""

    def __init__(self, directory: Path) -> None:
        (directory / "arena").mkdir()
        model = build_model(elements=ELEMENTS, parameters=PARAMETERS)
        self.directory, self.arena = directory, Arena.create(directory / "arena", plan_layout(model, 7, 1 << 24))
        self.dense, self.session, self.applier = DenseStore(self.arena), Session(shard_map_epoch=5), Applier()
        self.dense.load(np.ones(ELEMENTS, np.float32), None, 1, 0, 0)
        self.log = AppliedLog(directory)
        sgd = DenseOptimizerSpec(name="sgd", learning_rate=0.5)
        self.service = StepService(self.session, self.dense, sgd, self.applier, self.log, model.dense)  # type: ignore[arg-type]

    def push(self, micro: int, step: int = 1, epoch: int = 5, peer: bytes = b"w", micros: int = 2) -> list[Outgoing]:
        message = DensePushMsg(
            request=10 + micro,
            sequence=1,
            mailbox=-1,
            lease_id=4,
            epoch=0,
            unit=2,
            start=8 + 2 * micro,
            stop=10 + 2 * micro,
            samples=2,
            skipped=0,
            want_parameters=False,
            shard_map_epoch=epoch,
            loss_sum=0.25,
            step=step,
            micro=micro,
            micros=micros,
        )
        vector = np.full(ELEMENTS, micro + 1, np.float32)
        return self.service.push(peer, WORKER, message, (memoryview(vector).cast("B"),))

    def close(self) -> None:
        self.log.close()
        self.arena.close()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def kinds(outgoing: list[Outgoing]) -> list[type]:
    return [type(one.message) for one in outgoing]


def test_a_step_is_committed_when_its_last_micro_batch_comes(bench: Bench) -> None:
    assert kinds(bench.service.ask(b"a", StepAskMsg(request=1, step=2, shard_map_epoch=5))) == []
    assert kinds(bench.push(1)) == [DensePushedMsg]
    assert (bench.dense.version(), bench.applier.settled) == (1, [])
    acknowledged, reached = bench.push(0)
    assert isinstance(acknowledged.message, DensePushedMsg) and not acknowledged.message.duplicate
    assert reached.peer == b"a" and reached.message == StepReachedMsg(request=1, step=2, samples_applied=4)
    vector = np.asarray(reached.frames[0])
    assert vector.tolist() == [1 - 0.5 * 3] * PARAMETERS + [1.5] * (ELEMENTS - PARAMETERS)
    assert bench.applier.settled == [1]
    assert bench.dense.applied(CREW, CREW_INCARNATION).stop == 12
    (record,) = read_applied(bench.directory)[1:]
    assert (int(record["worker"]), int(record["sequence"]), int(record["samples"])) == (CREW, 1, 4)
    assert float(record["loss_sum"]) == 0.5
    bench.close()


def test_a_step_is_held_while_there_is_no_space_for_its_record(bench: Bench) -> None:
    bench.service.ask(b"a", StepAskMsg(request=1, step=2, shard_map_epoch=5))
    with file_limit(0):
        bench.push(1)
        assert kinds(bench.push(0)) == [DensePushedMsg], "the push is staged"
        assert kinds(bench.push(0)) == [DensePushedMsg], "the push is sent again"
        assert not bench.service.leave_out(leave_out()), "the step is about to be committed"
        with pytest.raises(DiskFullError):
            bench.service.commit_held()
        assert bench.dense.version() == 1
    assert kinds(bench.service.commit_held()) == [StepReachedMsg]
    assert bench.service.commit_held() == []
    assert (bench.dense.version(), bench.applier.settled) == (2, [1])
    (record,) = read_applied(bench.directory)[1:]
    assert int(record["samples"]) == 4
    bench.close()


def test_a_held_step_is_forgotten_when_the_shard_map_changes(bench: Bench) -> None:
    with file_limit(0):
        bench.push(1)
        bench.push(0)
    bench.session.shard_map_epoch = 6
    assert bench.service.commit_held() == []
    assert bench.dense.version() == 1, "the step is computed again"
    bench.push(1, epoch=6)
    bench.push(0, epoch=6)
    assert bench.dense.version() == 2
    bench.close()


def leave_out(step: int = 1, micro: int = 0, epoch: int = 5) -> PushMsg:
    return PushMsg(request=7, sequence=step, shard_map_epoch=epoch, counts=(0,), step=step, micro=micro)


def test_a_micro_batch_cannot_be_left_out_of_a_committed_step_or_under_an_older_map(bench: Bench) -> None:
    assert not bench.service.leave_out(leave_out(epoch=4)), "under an older shard map"
    bench.push(0)
    bench.push(1)
    assert not bench.service.leave_out(leave_out()), "the step is committed"
    assert bench.service.leave_out(leave_out(step=2))
    bench.close()


def test_a_push_for_a_committed_step_is_acknowledged_and_changes_nothing(bench: Bench) -> None:
    bench.push(0)
    bench.push(1)
    before = bench.dense.state_copy().vector
    (answer,) = bench.push(1, epoch=4)
    assert isinstance(answer.message, DensePushedMsg) and answer.message.duplicate
    assert bench.dense.version() == 2
    assert np.array_equal(bench.dense.state_copy().vector, before)
    bench.close()


def test_a_repeated_push_of_the_only_micro_batch_is_committed_once(bench: Bench) -> None:
    """If the repeated push counted, it would be the whole gradient of the next step."""
    bench.push(0, micros=1)
    (answer,) = bench.push(0, micros=1)
    assert isinstance(answer.message, DensePushedMsg) and answer.message.duplicate
    assert bench.dense.version() == 2
    bench.close()


def test_a_late_push_for_the_step_before_does_not_change_the_open_step(bench: Bench) -> None:
    bench.push(0)
    bench.push(1)
    bench.push(0, step=2)
    bench.push(0)
    bench.push(1, step=2)
    assert bench.dense.version() == 3, "the micro-batches that came before are kept"
    bench.close()


def test_nothing_staged_under_another_shard_map_counts(bench: Bench) -> None:
    bench.push(0)
    bench.session.shard_map_epoch = 6
    assert kinds(bench.push(1)) == [RetryMsg], "its rows may have been dropped"
    assert kinds(bench.push(1, epoch=6)) == [DensePushedMsg]
    assert bench.dense.version() == 1, "the other micro-batch was pushed under the older map"
    bench.push(0, epoch=6)
    assert bench.dense.version() == 2
    assert kinds(bench.push(0, step=3, epoch=6)) == [RetryMsg], "a step that is not open"
    bench.close()


def test_a_request_under_another_shard_map_must_be_repeated(bench: Bench) -> None:
    bench.service.ask(b"a", StepAskMsg(request=1, step=2, shard_map_epoch=5))
    bench.session.shard_map_epoch = 6
    (refused,) = bench.service.ask(b"b", StepAskMsg(request=2, step=1, shard_map_epoch=5))
    assert isinstance(refused.message, RetryMsg) and refused.message.shard_map_epoch == 6
    (answer,) = bench.service.ask(b"b", StepAskMsg(request=3, step=1, shard_map_epoch=6))
    assert isinstance(answer.message, StepReachedMsg) and answer.message.step == 1
    bench.push(0, epoch=6)
    assert kinds(bench.push(1, epoch=6)) == [DensePushedMsg], "the worker that waited under the older map asks again"
    bench.close()


def test_a_vector_of_another_size_is_refused(bench: Bench) -> None:
    message = DensePushMsg(1, 1, -1, 4, 0, 2, 0, 2, 2, 0, False, shard_map_epoch=5, step=1, micro=0, micros=1)
    with pytest.raises(ProtocolError, match="bytes"):
        bench.service.push(b"w", WORKER, message, (memoryview(b"1234"),))
    bench.close()
