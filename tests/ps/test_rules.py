"""Messages that no worker of a job can send are refused first: impossible numbers, and messages of another mode."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.rules import Rules, require_finite
from elastichost.wire.data import (
    ClockAdvancedMsg,
    DataMessage,
    DenseFetchMsg,
    DensePushMsg,
    PullMsg,
    PushMsg,
    StepAskMsg,
)

WORKER = ProcessId("worker", 1, 1)
COMMIT = DensePushMsg(
    request=1,
    sequence=1,
    mailbox=-1,
    lease_id=1,
    epoch=0,
    unit=0,
    start=0,
    stop=100,
    samples=99,
    skipped=1,
    want_parameters=True,
    shard_map_epoch=1,
)
SERVED = Rules(is_sync=False, sends_gradients=True, batch_size=128, micro_batches=4, places=8)
SYNC = Rules(is_sync=True, sends_gradients=True, batch_size=128, micro_batches=4, places=8)
ON_GPU = Rules(is_sync=False, sends_gradients=False, batch_size=128, micro_batches=4, places=8, on_gpu=True)
IN_STEP = msgspec.structs.replace(COMMIT, step=5, micro=1, micros=4)


def changed(message: DensePushMsg, **facts: Any) -> DensePushMsg:
    return msgspec.structs.replace(message, **facts)


def test_messages_of_workers_are_accepted() -> None:
    direct = Rules(is_sync=False, sends_gradients=False, batch_size=128, micro_batches=4, places=8)
    for message in (
        COMMIT,
        changed(COMMIT, skipped=50),
        changed(COMMIT, shard_map_epoch=0),
        DenseFetchMsg(request=1),
        ClockAdvancedMsg(1, -1, 2),
    ):
        SERVED.check(WORKER, message)
    direct.check(WORKER, changed(COMMIT, mailbox=1, shard_map_epoch=0))
    ON_GPU.check(WORKER, changed(COMMIT, mailbox=1, shard_map_epoch=0, is_applied=True))
    for message in (
        IN_STEP,
        StepAskMsg(1, 5, 1),
        PullMsg(1, 1, True, True, (3,), step=5),
        PullMsg(1, 1, False, True, (3,)),
    ):
        SYNC.check(WORKER, message)
    SYNC.check(WORKER, changed(IN_STEP, samples=0, skipped=100, is_left_out=True))


@pytest.mark.parametrize(
    ("rules", "message", "said"),
    [
        (SERVED, changed(COMMIT, step=5), "not in sync mode"),
        (SERVED, PushMsg(1, 1, 1, (3,), step=5), "not in sync mode"),
        (SERVED, PullMsg(1, 1, True, True, (3,), step=5), "not in sync mode"),
        (SERVED, StepAskMsg(1, 5, 1), "not in sync mode"),
        (SYNC, COMMIT, "in sync mode"),
        (SYNC, PushMsg(1, 1, 1, (3,)), "in sync mode"),
        (SYNC, changed(IN_STEP, micros=5), "at most 4"),
        (SERVED, changed(COMMIT, stop=0, start=1), "99 samples"),
        (SERVED, changed(COMMIT, samples=101, skipped=0), "101 samples"),
        (SERVED, changed(COMMIT, samples=10, skipped=10), "10 skipped"),
        (SERVED, changed(COMMIT, stop=1000, samples=900, skipped=100), "a batch has at most"),
        (SERVED, changed(COMMIT, mailbox=0), "mailbox"),
        (
            SERVED,
            changed(COMMIT, is_applied=True),
            "no vector, but the dense part .* of the host",
        ),
        (ON_GPU, changed(COMMIT, mailbox=0), "a vector, but the dense part .* of the GPU"),
    ],
)
def test_messages_that_no_worker_of_this_job_can_send_are_refused(
    rules: Rules, message: DataMessage, said: str
) -> None:
    with pytest.raises(ProtocolError, match=said):
        rules.check(WORKER, message)


def test_a_worker_beyond_the_places_of_the_arena_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"out of range \(0 to 7\)"):
        SERVED.check(ProcessId("worker", 8, 1), DenseFetchMsg(request=1))


def test_gradients_must_be_finite() -> None:
    large = np.full(4, 3e38, np.float32)
    require_finite(large, "worker-0.1")  # the sum overflows, but every element is finite
    require_finite(np.zeros(0, np.float32), "worker-0.1")
    for bad in (np.nan, np.inf, -np.inf):
        gradients = np.ones(100, np.float32)
        gradients[57] = bad
        with pytest.raises(ProtocolError, match="of worker-0.1 are not finite"):
            require_finite(gradients, "worker-0.1")


DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(DataMessage)


@pytest.mark.parametrize(
    "facts",
    [
        {"samples": -1},
        {"skipped": 1 << 32},
        {"sequence": 1 << 40},
        {"stop": 1 << 63},
        {"lease_id": -1},
        {"epoch": 1 << 32},
        {"mailbox": 2},
        {"mailbox": -2},
        {"micro": 128},
        {"micros": 0},
        {"learning_rate_scale": float("nan")},
        {"learning_rate_scale": float("inf")},
        {"learning_rate_scale": -1.0},
        {"loss_sum": float("nan")},
        {"shard_map_epoch": -1},
    ],
)
def test_messages_with_impossible_numbers_cannot_be_decoded(facts: dict[str, Any]) -> None:
    assert DECODER.decode(msgspec.msgpack.encode(COMMIT)) == COMMIT
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(msgspec.msgpack.encode(changed(COMMIT, **facts)))
