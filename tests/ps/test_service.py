"""The data messages of a PS over a real arena: which ones it refuses, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.errors import MemoryBudgetError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.applier import RowApplier
from elastichost.ps.frames import Outgoing
from elastichost.ps.rows.store import RowStore
from elastichost.ps.rules import Rules
from elastichost.ps.service import DataService
from elastichost.ps.session import Session
from elastichost.sharding import even_shard_map
from elastichost.wire.applied import read_applied
from elastichost.wire.codec import Envelope
from elastichost.wire.data import (
    DataMessage,
    DensePushedMsg,
    DensePushMsg,
    Message,
    PulledMsg,
    PullMsg,
    PushedMsg,
    PushMsg,
    RetryMsg,
    RowsCommittedMsg,
)
from tests.arena.conftest import build_model

EPOCH, PARAMETERS, ELEMENTS, DIM = 5, 8, 10, 4
WORKER, LATER = ProcessId("worker", 3, 2), ProcessId("worker", 3, 3)
PEER = b"worker-3.2/dense1"
LR = 0.5


class Bench:
    """A PS that owns everything: one fixed table of 100 rows and the dense vector, both trained by SGD."""

    def __init__(self, directory: Path, *, is_sync: bool) -> None:
        (directory / "arena").mkdir()
        model = build_model(rows=(100,), dims=(DIM,), optimizer="sgd", elements=ELEMENTS, parameters=PARAMETERS)
        self.directory, self.arena = directory, Arena.create(directory / "arena", plan_layout(model, 7, 1 << 24))
        self.dense, self.session = DenseStore(self.arena), Session(shard_map_epoch=EPOCH)
        self.dense.load(np.ones(ELEMENTS, np.float32), None, 1, 0, 0)
        store = RowStore(self.arena, 7)
        store.adopt(even_shard_map(model.tables, (0,), epoch=1).buckets_of(0), initialise=True)
        self.applier = RowApplier(self.arena.directory, 0, 1, store.lines)
        self.log = AppliedLog(directory)
        self.service = DataService(
            model,
            self.session,
            store,
            self.dense,
            DenseOptimizerSpec(name="sgd", learning_rate=LR),
            self.applier,
            self.log,
            Rules(is_sync=is_sync, sends_gradients=True, batch_size=64, micro_batches=4, places=256, has_dense=True),
        )
        self.service.is_dense_owner = True

    def ask(self, message: DataMessage, *frames: np.ndarray, sender: ProcessId = WORKER) -> Message:
        """Handles a message; returns its single answer."""
        (answer,) = self.handle(message, *frames, sender=sender)
        assert isinstance(answer.message, Message)
        return answer.message

    def handle(self, message: DataMessage, *frames: np.ndarray, sender: ProcessId = WORKER) -> list[Outgoing]:
        views = tuple(memoryview(frame).cast("B") for frame in frames)
        return self.service.handle(PEER, Envelope(sender, 1, message, views))

    def state(self) -> tuple[int, bytes, bytes, tuple[tuple[int, int, int], ...], int]:
        """Everything that a message could change: version, dense vector, rows, staged pushes, logged records."""
        vector = self.dense.state_copy().vector.tobytes()
        return (
            self.dense.version(),
            vector,
            self.arena.rows_view(0).tobytes(),
            self.applier.waiting(),
            len(read_applied(self.directory)),
        )

    def close(self) -> None:
        self.log.close()
        self.applier.close()
        self.arena.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, is_sync=False)
    yield made
    made.close()


@pytest.fixture
def sync_bench(tmp_path: Path) -> Iterator[Bench]:
    """A PS in sync mode whose open step is 1."""
    made = Bench(tmp_path, is_sync=True)
    yield made
    made.close()


def commit(sequence: int, **facts: object) -> DensePushMsg:
    message = DensePushMsg(
        request=100 + sequence,
        sequence=sequence,
        mailbox=-1,
        lease_id=4,
        epoch=0,
        unit=2,
        start=8 * sequence,
        stop=8 * sequence + 8,
        samples=8,
        skipped=0,
        want_parameters=False,
    )
    return msgspec.structs.replace(message, **facts)


def push(sequence: int, **facts: object) -> PushMsg:
    message = PushMsg(request=200 + sequence, sequence=sequence, shard_map_epoch=EPOCH, counts=(2,))
    return msgspec.structs.replace(message, **facts)


ROWS = np.array([3, 50], np.int64)
LINES = np.ones(2 * DIM, np.float32)
GRADIENT = np.ones(ELEMENTS, np.float32)


# --- the order of commits ---------------------------------------------------------------------------------------------


def test_a_batch_is_not_committed_before_the_one_before_it(bench: Bench) -> None:
    """The message of the first commit is lost. If the second batch were committed, the first would count as applied."""
    before = bench.state()
    refused = bench.ask(commit(2), GRADIENT)
    assert isinstance(refused, RetryMsg) and refused.reason == "batch 2 came after batch 0" and not refused.final
    assert bench.state() == before
    for sequence in (1, 2):  # the worker sends both again
        answer = bench.ask(commit(sequence), GRADIENT)
        assert isinstance(answer, DensePushedMsg) and not answer.duplicate
    applied = bench.dense.applied(WORKER.index, WORKER.incarnation)
    assert (applied.sequence, applied.samples, bench.dense.version()) == (2, 16, 3)
    assert [n for n in read_applied(bench.directory)["sequence"].tolist() if n] == [1, 2]


def test_a_push_for_which_there_is_no_memory_now_is_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the PS ended, and with it the job."""

    def full(*_: object) -> None:
        raise MemoryBudgetError("a staged push needs more bytes")

    stage = RowApplier.stage
    monkeypatch.setattr(RowApplier, "stage", full)
    answer = bench.ask(push(1), ROWS, LINES)
    assert isinstance(answer, RetryMsg) and "needs more bytes" in answer.reason and not answer.final
    monkeypatch.setattr(RowApplier, "stage", stage)
    answer = bench.ask(push(1), ROWS, LINES)
    assert isinstance(answer, PushedMsg) and not answer.duplicate


def test_a_batch_far_ahead_is_not_committed_either_and_a_new_incarnation_begins_at_one(bench: Bench) -> None:
    bench.ask(commit(1), GRADIENT)
    assert isinstance(bench.ask(commit(4), GRADIENT), RetryMsg)
    assert isinstance(bench.ask(commit(2), GRADIENT, sender=LATER), RetryMsg), "its first batch was lost"
    assert isinstance(bench.ask(commit(1), GRADIENT, sender=LATER), DensePushedMsg)
    assert bench.dense.version() == 3


def test_a_commit_that_comes_twice_changes_nothing(bench: Bench) -> None:
    bench.ask(commit(1), GRADIENT)
    before = bench.state()
    answer = bench.ask(commit(1), GRADIENT)
    assert isinstance(answer, DensePushedMsg) and answer.duplicate
    assert bench.state() == before


@pytest.mark.parametrize(
    ("staged_under", "reason"),
    [(EPOCH - 1, "staged under an older shard map"), (EPOCH + 1, "staged under a newer shard map")],
)
def test_rows_that_were_staged_under_another_shard_map_are_not_committed(
    bench: Bench, staged_under: int, reason: str
) -> None:
    before = bench.state()
    answer = bench.ask(commit(1, shard_map_epoch=staged_under), GRADIENT)
    assert isinstance(answer, RetryMsg) and reason in answer.reason
    assert bench.state() == before


def test_released_batches_are_committed_in_order_and_without_gaps(bench: Bench) -> None:
    """The mailbox of a dead worker: the first batch is committed by its message, the message of the second is lost."""
    for sequence in (1, 2):
        mailbox = bench.dense.mailbox(WORKER.index, sequence & 1)
        mailbox.vector[:] = GRADIENT
        mailbox.post(WORKER.incarnation, sequence, msgspec.msgpack.encode(commit(sequence, mailbox=sequence & 1)))
    bench.service.commit_posted(WORKER.index, WORKER.incarnation - 1)
    assert bench.dense.version() == 1, "the mailbox has no batch of the previous incarnation"
    for _ in range(2):
        bench.service.commit_posted(WORKER.index, WORKER.incarnation)
        assert bench.dense.applied(WORKER.index, WORKER.incarnation).sequence == bench.dense.version() - 1 == 2
    bench.dense.mailbox(WORKER.index, 0).post(
        WORKER.incarnation, 4, msgspec.msgpack.encode(commit(4, mailbox=0))
    )  # batch 3 was never released
    bench.service.commit_posted(WORKER.index, WORKER.incarnation)
    assert bench.dense.applied(WORKER.index, WORKER.incarnation).sequence == bench.dense.version() - 1 == 2


# --- gradients that are not finite ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_row_gradients_that_are_not_finite_are_refused(bench: Bench, bad: float) -> None:
    """One element of one row suffices: that row would stay NaN for the rest of the run."""
    before, lines = bench.state(), LINES.copy()
    lines[DIM + 1] = bad
    with pytest.raises(ProtocolError, match=r"gradients of worker-3\.2 are not finite"):
        bench.handle(push(1), ROWS, lines)
    assert bench.state() == before
    assert isinstance(bench.ask(push(1), ROWS, LINES), PushedMsg)
    bench.ask(commit(1, shard_map_epoch=EPOCH), GRADIENT)
    assert np.isfinite(bench.arena.rows_view(0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_row_gradients_of_a_micro_batch_that_are_not_finite_are_refused(sync_bench: Bench, bad: float) -> None:
    before, lines = sync_bench.state(), LINES.copy()
    lines[0] = bad
    micro = push(1, step=1, micro=0)
    with pytest.raises(ProtocolError, match=r"gradients of worker-3\.2 are not finite"):
        sync_bench.handle(micro, ROWS, lines)
    assert sync_bench.state() == before
    assert isinstance(sync_bench.ask(micro, ROWS, LINES), PushedMsg)


def test_dense_gradients_must_be_finite_and_buffers_need_not_be(bench: Bench) -> None:
    before, vector = bench.state(), GRADIENT.copy()
    vector[PARAMETERS - 1] = np.nan
    with pytest.raises(ProtocolError, match="not finite"):
        bench.handle(commit(1), vector)
    assert bench.state() == before
    vector = GRADIENT.copy()
    vector[PARAMETERS] = np.inf  # a buffer may have any value; the model decides what it means
    assert isinstance(bench.ask(commit(1), vector), DensePushedMsg)


def test_a_dense_gradient_of_a_micro_batch_that_is_not_finite_is_refused(sync_bench: Bench) -> None:
    before, vector = sync_bench.state(), GRADIENT.copy()
    vector[0] = np.nan
    with pytest.raises(ProtocolError, match="not finite"):
        sync_bench.handle(commit(1, shard_map_epoch=EPOCH, step=1, micro=0, micros=1), vector)
    assert sync_bench.state() == before


# --- senders and shard maps -------------------------------------------------------------------------------------------


def test_only_the_dense_owner_commits(bench: Bench) -> None:
    bench.service.is_dense_owner = False
    before = bench.state()
    answer = bench.ask(commit(1), GRADIENT)
    assert isinstance(answer, RetryMsg) and "does not own the dense vector" in answer.reason and not answer.final
    assert bench.state() == before


def test_a_message_of_another_role_is_refused(bench: Bench) -> None:
    with pytest.raises(ProtocolError, match="only workers may send it to a PS"):
        bench.handle(commit(1), GRADIENT, sender=ProcessId("server", 1, 1))


def test_a_fenced_incarnation_is_refused_finally_and_the_next_one_is_served(bench: Bench) -> None:
    bench.session.fence(WORKER.index, WORKER.incarnation)
    before = bench.state()
    for message, frames in ((commit(1), (GRADIENT,)), (push(1), (ROWS, LINES)), (RowsCommittedMsg(1, 1), ())):
        answer = bench.ask(message, *frames)  # type: ignore[arg-type]
        assert isinstance(answer, RetryMsg) and answer.final and "fenced" in answer.reason
    assert bench.state() == before
    assert isinstance(bench.ask(push(1), ROWS, LINES, sender=LATER), PushedMsg)


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_rows_are_served_under_the_present_shard_map_only(bench: Bench, epoch: int) -> None:
    """Under another shard map another PS may own their buckets."""
    before = bench.state()
    pull = PullMsg(1, epoch, create=True, weights=True, counts=(2,))
    for message, frames in ((pull, (ROWS,)), (push(1, shard_map_epoch=epoch), (ROWS, LINES))):
        answer = bench.ask(message, *frames)  # type: ignore[arg-type]
        assert isinstance(answer, RetryMsg) and (answer.shard_map_epoch, answer.final) == (EPOCH, False)
    assert bench.state() == before


# --- sync mode --------------------------------------------------------------------------------------------------------


def test_a_push_for_a_step_waits_for_the_step_and_not_for_its_worker(sync_bench: Bench) -> None:
    assert isinstance(sync_bench.ask(push(1, step=1, micro=2), ROWS, LINES), PushedMsg)
    assert sync_bench.applier.waiting() == ((2, 0, 1),)


def test_no_worker_computes_with_rows_of_a_later_step(sync_bench: Bench) -> None:
    """Step 1 is committed, so the rows are those of step 2 now. An evaluation may read them."""
    sync_bench.ask(push(1, step=1), ROWS, LINES)
    sync_bench.ask(commit(1, shard_map_epoch=EPOCH, step=1, micro=0, micros=1), GRADIENT)
    assert sync_bench.dense.version() == 2
    pull = PullMsg(1, EPOCH, create=True, weights=True, counts=(2,), step=1)
    answer = sync_bench.ask(pull, ROWS)
    assert isinstance(answer, RetryMsg) and answer.reason == "step 1 is over"
    assert isinstance(sync_bench.ask(msgspec.structs.replace(pull, step=2), ROWS), PulledMsg)
    assert isinstance(sync_bench.ask(msgspec.structs.replace(pull, create=False), ROWS), PulledMsg)


def test_a_micro_batch_is_left_out_of_a_step_under_way_only(sync_bench: Bench) -> None:
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.float32))
    assert isinstance(sync_bench.ask(push(1, step=1, micro=1, counts=(0,)), *nothing), PushedMsg)
    sync_bench.ask(commit(1, shard_map_epoch=EPOCH, step=1, micro=0, micros=1), GRADIENT)
    answer = sync_bench.ask(push(1, step=1, micro=0, counts=(0,)), *nothing)
    assert isinstance(answer, RetryMsg) and answer.reason == "step 1 is over"


def test_pulls_and_pushes_for_a_step_that_has_not_begun_are_refused(sync_bench: Bench) -> None:
    before = sync_bench.state()
    pull = PullMsg(1, EPOCH, create=True, weights=True, counts=(2,), step=2)
    for message, frames in ((pull, (ROWS,)), (push(1, step=2), (ROWS, LINES))):
        answer = sync_bench.ask(message, *frames)  # type: ignore[arg-type]
        assert isinstance(answer, RetryMsg) and answer.reason == "step 2 has not begun"
    assert sync_bench.state() == before


def test_the_next_incarnation_waits_until_the_push_of_the_one_before_is_settled(bench: Bench) -> None:
    """The push that the previous incarnation staged may be committed, so it must not be overwritten."""
    bench.ask(push(1), ROWS, LINES)
    before = bench.state()
    answer = bench.ask(push(1), ROWS, LINES, sender=LATER)
    assert isinstance(answer, RetryMsg) and "waits to be settled" in answer.reason
    assert bench.state() == before
    bench.applier.settle(WORKER.index, WORKER.incarnation, 0, is_over=True)
    assert isinstance(bench.ask(push(1), ROWS, LINES, sender=LATER), PushedMsg)


def test_a_push_is_applied_when_its_batch_is_reported_as_committed(bench: Bench) -> None:
    rows = bench.arena.rows_view(0)
    learned = rows[ROWS, :DIM] - np.float32(0.1)  # after a gradient of ones, at the learning rate of the row optimizer
    bench.ask(push(1), ROWS, LINES)
    bench.ask(RowsCommittedMsg(request=1, sequence=0))
    assert len(bench.applier.waiting()) == 1, "the commit of another batch does not apply this one"
    bench.ask(RowsCommittedMsg(request=2, sequence=1))
    assert bench.applier.waiting() == ()
    answer = bench.ask(push(1), ROWS, LINES)
    assert isinstance(answer, PushedMsg) and answer.duplicate
    bench.ask(RowsCommittedMsg(request=3, sequence=1))
    np.testing.assert_allclose(rows[ROWS, :DIM], learned, rtol=1e-6)


@pytest.mark.parametrize("counts", [(), (1, 1), (-1,)])
def test_counts_that_do_not_fit_the_tables_are_refused(bench: Bench, counts: tuple[int, ...]) -> None:
    before = bench.state()
    with pytest.raises(ProtocolError, match="do not fit the model, which has 1 tables"):
        bench.handle(push(1, counts=counts), ROWS, LINES)
    assert bench.state() == before
