"""The crew of sync mode: assignment of micro-batches, grants, committed steps, and micro-batches left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import JobFailedError, ProtocolError
from elastichost.micro_batches import CREW, CREW_INCARNATION, MicroBatch
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.ps.applied_log import AppliedLog
from elastichost.runs.events import MicroBatchesAssigned, SamplesQuarantined
from elastichost.supervisor.controllers.sync_crew import REASSIGN_EVERY_S, CrewLeaseController
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.supervisor.core.lifecycle import State
from elastichost.supervisor.ledger.ledger import Ledger, LedgerSettings
from elastichost.wire.applied import left_out_words
from elastichost.wire.control import CrewMsg, FencedMsg, FenceMsg, HeartbeatMsg, StepsGrantMsg
from elastichost.wire.facts import AppliedBatch, StepSample
from tests.arena.conftest import build_model
from tests.supervisor.noted import Noted

BATCH, MICROS = 4, 4


class Stage:
    """A run with a crew: its messages and events, and a dense owner that commits on request."""

    def __init__(self, directory: Path) -> None:
        model = build_model()
        self.arena = Arena.create(directory, plan_layout(model, 7, 1 << 24))
        self.dense, self.watermarks = DenseStore(self.arena), Watermarks(directory)
        self.dense.load(np.ones(model.dense.elements, np.float32), None, 1, 0, 0)
        self.log = AppliedLog(directory)
        self.now_s, self.may_grant = 0.0, True
        self.sent: list[tuple[ProcessId, Any]] = []
        self.noted = Noted()
        self.fleet = Fleet()
        run: Any = SimpleNamespace(
            now_s=lambda: self.now_s,
            fleet=self.fleet,
            directory=SimpleNamespace(path=directory),
            job=SimpleNamespace(train=SimpleNamespace(micro_batches=MICROS)),
            send=lambda process, message: self.sent.append((process, message)),
            send_all=lambda processes, message: self.sent.extend((process, message) for process in tuple(processes)),
            **self.noted.attributes,
        )
        self.ledger = Ledger(LedgerSettings(units=(12, 20), epochs=1, batch_size=BATCH))
        self.may_tell = True
        may_grant, may_tell = lambda: self.may_grant, lambda: self.may_tell
        self.leases = CrewLeaseController(run, self.ledger, may_grant, may_tell, self.dense, self.watermarks)

    def join(self, role: str, index: int, incarnation: int = 1) -> ProcessRecord:
        process = ProcessId(role, index, incarnation)
        spec = ProcessSpec(role=role, index=index, cores=(), threads=1)  # type: ignore[arg-type]
        record = self.fleet.request(process, spec, self.now_s)
        record.state = State.READY
        if role == "worker":
            self.leases.worker_ready(record)
        return record

    def beat(self, record: ProcessRecord, samples: int, seconds: float) -> None:
        self.fleet.heartbeat(record, HeartbeatMsg(1, StepSample(samples=samples, compute_s=seconds)), self.now_s)

    def lease_of(self, stop: int) -> int:
        """The lease of the step that ends at this position of the first unit."""
        leases = [grant.lease for grant in self.to(0, StepsGrantMsg) if grant.lease.unit == 0]
        return next(lease.lease_id for lease in leases if lease.start < stop <= lease.stop)

    def commit(
        self, stop: int, lease_id: int, samples: int = BATCH, skipped: int = 0, left_out: tuple[int, ...] = ()
    ) -> None:
        """Commits the step that ends at this position."""
        step, accounts = self.dense.version(), (max(0, stop - samples - skipped), stop, samples, skipped, 0.0)
        self.log.write(step, (CREW, CREW_INCARNATION, step, lease_id, 0, 0, *accounts, left_out_words(left_out)))
        nothing = np.zeros(self.arena.model.dense.elements, np.float32)
        self.dense.apply_gradient(
            nothing,
            DenseOptimizerSpec(name="sgd"),
            1.0,
            worker=CREW,
            incarnation=CREW_INCARNATION,
            sequence=self.dense.version(),
            lease_id=lease_id,
            stop=stop,
            samples=samples,
            skipped=skipped,
        )

    def to(self, index: int, kind: type[Any]) -> list[Any]:
        return [message for process, message in self.sent if process.index == index and isinstance(message, kind)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage; its files are closed at the end."""
    made = Stage(tmp_path)
    yield made
    made.log.close()
    made.arena.close()


def test_ranges_go_to_the_whole_crew_and_steps_are_numbered_consecutively(stage: Stage) -> None:
    stage.join("worker", 0)
    stage.leases.serve()
    first, second = stage.to(0, StepsGrantMsg)
    assert (first.first_step, first.lease.start, second.first_step) == (1, 0, 1 + (first.lease.stop // BATCH))
    stage.join("worker", 1)
    assert stage.to(1, StepsGrantMsg) == [first, second], "a new member gets the open ranges"
    assert stage.to(1, CrewMsg)[-1] == stage.to(0, CrewMsg)[-1]
    assert stage.to(0, CrewMsg)[-1].workers == (0, 0, 1, 1)


def test_nothing_is_granted_without_a_crew_or_during_a_pause(stage: Stage) -> None:
    stage.leases.serve()
    assert stage.sent == []
    stage.may_grant = False
    stage.join("worker", 0)
    stage.leases.serve()
    assert stage.to(0, StepsGrantMsg) == []
    stage.may_grant = True
    stage.leases.serve()
    assert len(stage.to(0, StepsGrantMsg)) == 2


def test_committed_steps_count_and_the_next_range_is_granted(stage: Stage) -> None:
    stage.join("worker", 0)
    stage.leases.serve()
    first, second = stage.to(0, StepsGrantMsg)
    for stop in range(BATCH, first.lease.stop + 1, BATCH):
        stage.commit(stop, first.lease.lease_id, BATCH - 1, 1)
    assert stage.leases.committed_step() == first.lease.stop // BATCH
    assert stage.ledger.trained == 3 * first.lease.stop // BATCH
    stage.leases.serve()
    (third,) = stage.to(0, StepsGrantMsg)[2:]
    assert third.first_step == second.first_step + -(-(second.lease.stop - second.lease.start) // BATCH)
    stage.join("worker", 1)
    assert stage.to(1, StepsGrantMsg) == [second, third]


def test_an_impossible_record_ends_the_job(stage: Stage) -> None:
    stage.join("worker", 0)
    stage.leases.serve()
    stage.commit(BATCH, stage.to(0, StepsGrantMsg)[0].lease.lease_id, samples=BATCH + 1)
    with pytest.raises(JobFailedError, match="at most 4 more positions"):
        stage.leases.serve()


def test_a_worker_that_leaves_or_dies_hands_its_micro_batches_on(stage: Stage) -> None:
    stage.join("server", 0)
    records = [stage.join("worker", index) for index in (0, 1, 2)]
    stage.leases.drained(records[1].process)
    assert stage.to(0, CrewMsg)[-1].workers == (0, 0, 2, 2)
    stage.leases.lost(records[2].process)
    assert stage.to(0, CrewMsg)[-1].workers == (0, 0, 0, 0)
    assert [message for process, message in stage.sent if process.role == "server"] == [FenceMsg(2, 1)]
    epochs = [crew.epoch for crew in stage.to(0, CrewMsg)]
    assert epochs == sorted(set(epochs)), "a newer crew has a larger epoch"
    late = ProcessId("worker", 0, 9)
    stage.leases.drained(late)
    assert len(stage.to(0, CrewMsg)) == len(epochs), "an incarnation that is not of the crew changes nothing"


def test_a_lost_member_is_unsettled_until_the_dense_owner_has_answered(stage: Stage) -> None:
    """Until then that PS may be committing the step that the member completed, so no checkpoint may be cut."""
    stage.join("server", 0)
    lost = stage.join("worker", 0).process
    stage.leases.serve()
    stage.leases.lost(lost)
    assert stage.leases.unsettled == 1
    stage.leases.server_ready(ProcessId("server", 0, 2))  # the dense owner died before it answered
    assert [message for process, message in stage.sent if process == ProcessId("server", 0, 2)] == [FenceMsg(0, 1)]
    stage.commit(4, stage.lease_of(4))  # what the first one was handling
    stage.leases.fenced(FencedMsg(0, 1, AppliedBatch(0, 0, 0, 0, 0)))
    assert stage.leases.unsettled == 0
    assert stage.ledger.trained == 4
    stage.leases.fenced(FencedMsg(0, 1, AppliedBatch(0, 0, 0, 0, 0)))
    assert stage.leases.unsettled == 0


def test_a_slow_worker_is_relieved_though_others_have_no_share_and_so_no_speed(stage: Stage) -> None:
    records = [stage.join("worker", index) for index in range(MICROS + 3)]
    for index, record in enumerate(records[:MICROS]):
        stage.beat(record, 20 if index == 1 else 100, 1.0)
    stage.now_s += REASSIGN_EVERY_S
    assert 1 in stage.to(0, CrewMsg)[-1].workers
    stage.leases.serve()
    assert 1 not in stage.to(0, CrewMsg)[-1].workers


def test_a_slow_worker_gets_fewer_micro_batches_only_for_a_clear_gain(stage: Stage) -> None:
    fast, slow = stage.join("worker", 0), stage.join("worker", 1)
    stage.beat(fast, 300, 1.0)
    stage.beat(slow, 280, 1.0)
    stage.now_s += REASSIGN_EVERY_S
    before = len(stage.to(0, CrewMsg))
    stage.leases.serve()
    assert len(stage.to(0, CrewMsg)) == before
    stage.beat(slow, 10, 2.0)
    stage.leases.serve()
    assert len(stage.to(0, CrewMsg)) == before, "not again within the interval"
    stage.now_s += REASSIGN_EVERY_S
    stage.leases.serve()
    assert stage.to(1, CrewMsg)[-1].workers == (0, 0, 0, 1)
    assert any("the new shares shorten a step" in event.reason for event in stage.noted.of(MicroBatchesAssigned))


def test_a_lease_request_is_refused(stage: Stage) -> None:
    with pytest.raises(ProtocolError, match="sync mode"):
        stage.leases.requested(stage.join("worker", 0), 1.0)


def key_of(step: int, micro: int) -> int:
    """The watermark of a worker that begins this micro-batch."""
    return MicroBatch(step, micro, MICROS, BATCH, 1, 0, 0, 0, 1, -1, False).key


def test_a_micro_batch_that_three_workers_died_on_is_left_out(stage: Stage) -> None:
    stage.join("worker", 0)
    stage.leases.serve()
    for incarnation in (1, 2, 3):
        victim = stage.join("worker", 7, incarnation).process
        stage.watermarks.note_begun(7, incarnation, key_of(2, 1))
        assert stage.to(0, CrewMsg)[-1].left_out == ()
        stage.leases.lost(victim)
    assert stage.to(0, CrewMsg)[-1].left_out == ((2, 1),)
    assert stage.ledger.quarantined == (), "the step's record must confirm it first"
    for stop in (4, 8, 12):
        stage.commit(stop, stage.lease_of(stop), 2 if stop == 8 else 4, 2 * (stop == 8), (1,) if stop == 8 else ())
    stage.leases.committed_step()
    (entry,) = stage.ledger.quarantined
    assert (entry.unit, entry.start, entry.stop, entry.failures) == (0, 6, 8, 3)
    assert [event.entry for event in stage.noted.of(SamplesQuarantined)] == [entry]
    assert (stage.ledger.trained, stage.ledger.skipped, stage.ledger.samples_quarantined) == (10, 0, 2)


def test_a_micro_batch_is_not_left_out_when_its_step_was_committed_with_it(stage: Stage) -> None:
    """The dead worker had pushed it, and the others finished the step before the message reached them."""
    stage.join("worker", 0)
    stage.leases.serve()
    for incarnation in (1, 2, 3):
        victim = stage.join("worker", 7, incarnation).process
        stage.watermarks.note_begun(7, incarnation, key_of(1, 1))
        stage.leases.lost(victim)
    stage.commit(4, stage.lease_of(4))
    stage.leases.committed_step()
    assert (stage.ledger.trained, stage.ledger.skipped, stage.ledger.quarantined) == (4, 0, ())
    assert not stage.noted.of(SamplesQuarantined)


def test_a_worker_that_joins_while_an_evaluation_is_due_computes_its_part_of_the_steps_before_it(stage: Stage) -> None:
    """No new range is granted then, but no other member would compute the new member's micro-batches."""
    stage.join("worker", 0)
    stage.leases.serve()
    stage.may_grant = False
    stage.join("worker", 1)
    assert stage.to(1, StepsGrantMsg) == stage.to(0, StepsGrantMsg)


def test_a_worker_that_joins_while_a_checkpoint_is_taken_begins_after_it(stage: Stage) -> None:
    """The others are paused. A step committed now would be in the rows of the checkpoint but not in its ledger."""
    stage.join("worker", 0)
    stage.leases.serve()
    stage.may_grant = stage.may_tell = False
    stage.join("worker", 1)
    stage.leases.serve()
    assert stage.to(1, StepsGrantMsg) == []
    stage.may_tell = True
    stage.leases.serve()
    assert stage.to(1, StepsGrantMsg) == stage.to(0, StepsGrantMsg)


def test_a_death_after_the_step_was_committed_does_not_count_against_the_micro_batch(stage: Stage) -> None:
    stage.join("worker", 0)
    stage.leases.serve()
    stage.commit(BATCH, stage.to(0, StepsGrantMsg)[0].lease.lease_id)
    for incarnation in (1, 2, 3, 4):
        victim = stage.join("worker", 7, incarnation).process
        stage.watermarks.note_begun(7, incarnation, key_of(1, 1))
        stage.leases.lost(victim)
    assert stage.ledger.quarantined == ()
