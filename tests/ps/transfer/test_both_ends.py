"""Orders to measure, copy, keep and forget buckets; eviction by age on hosts without the dense vector."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.applier import RowApplier
from elastichost.ps.rows.eviction import GRACE_BATCHES
from elastichost.ps.rows.evictor import Evictor
from elastichost.ps.rows.store import RowStore
from elastichost.ps.session import Session
from elastichost.ps.transfer.both_ends import BucketTransfers
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    BucketsMeasuredMsg,
    CopyBucketsMsg,
    ForgetBucketsMsg,
    ForgottenMsg,
    KeepBucketsMsg,
    MeasureBucketsMsg,
)
from elastichost.wire.data import BucketFetchMsg, DataMessage, DenseFetchMsg
from elastichost.wire.facts import BucketMove, ServerAddress
from tests.ps.rows.test_store import DYNAMIC, FIXED, model_of

BUCKETS = [(FIXED, bucket) for bucket in range(3)] + [(DYNAMIC, bucket) for bucket in range(16)]


class Bench:
    """One PS that owns all buckets."""

    def __init__(self, directory: Path, **model: Any) -> None:
        self.arena = Arena.create(directory, plan_layout(model_of(**model), 7, 1 << 24), whole=False)
        self.store = RowStore(self.arena, 7)
        self.store.adopt(BUCKETS, initialise=True)
        self.applier = RowApplier(directory, 0, 2, self.store.lines)
        self.sent: list[Any] = []
        facts = {"job_id": 1, "control_address": "", "run_dir": "", "arena_directory": "", "socket_directory": ""}
        arguments = ChildArguments(
            "server",
            0,
            1,
            **facts,
            cores=(),
            threads=1,
            access="served",
            supervisor_pid=1,  # type: ignore[arg-type]
        )
        self.moving = BucketTransfers(arguments, self.arena, self.store, self.applier, self.sent.append)

    def close(self) -> None:
        self.applier.close()
        self.arena.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_the_bytes_of_buckets_are_measured(bench: Bench) -> None:
    bench.store.rows_for(DYNAMIC, np.arange(1000), True, 0)
    rows = len(bench.store.snapshot_bucket(DYNAMIC, 3)[0].array)
    bench.moving.handle(MeasureBucketsMsg(9, ((FIXED, 0), (DYNAMIC, 3))))
    # fixed: dim 6 padded to 8 floats, 1 float of state; dynamic: id and stamp, 4 + 4 floats, and 4 floats without state
    assert bench.sent == [BucketsMeasuredMsg(9, (834 * 36, rows * (12 + 32 + 16)))]


def test_owned_buckets_are_forgotten_after_they_are_released(bench: Bench) -> None:
    bench.moving.handle(ForgetBucketsMsg(4, ((FIXED, 0), (DYNAMIC, 3))))
    assert bench.sent == []
    bench.store.release([(FIXED, 0)])
    bench.moving.forget()
    assert bench.sent == []
    bench.store.release([(DYNAMIC, 3)])
    before = bench.arena.touched_bytes()
    bench.moving.forget()
    assert bench.sent == [ForgottenMsg(4)]
    assert bench.arena.touched_bytes() < before
    bench.moving.forget()
    assert len(bench.sent) == 1


def test_buckets_that_the_ps_has_already_are_not_copied_again(bench: Bench) -> None:
    here = BucketMove(FIXED, 0, ServerAddress(3, 2, "ipc:///nowhere"))
    bench.moving.handle(CopyBucketsMsg(1, (here,)))
    assert bench.moving.clients == ()
    assert not bench.moving.turn(0.0)
    assert bench.moving.take_over([])
    assert not bench.moving.take_over([(FIXED, 1)])


def test_in_sync_mode_the_old_index_is_free_at_once(tmp_path: Path) -> None:
    """Regression: the commits of a crew belong to no worker, so the grace never ended and old pages stayed."""
    bench = Bench(tmp_path)
    bench.store.rows_for(DYNAMIC, np.arange(100), True, 0)
    bench.store.rows_for(DYNAMIC, np.arange(100, 1500), True, 0)
    assert bench.store.needs_grace, "an index has grown"
    told = SimpleNamespace(clock=0, committed_of=lambda worker, incarnation: 0)
    dense = SimpleNamespace(samples_applied=lambda: 0, applied=lambda worker, incarnation: SimpleNamespace(sequence=0))
    facts = (bench.arena.model.tables, bench.store, dense, told, Session(members={0: 1}), None)
    now_s = itertools.count(1.0)
    for is_sync in (False, True):
        evictor = Evictor(*facts, is_sync=is_sync)  # type: ignore[arg-type]
        for _ in range(8):
            evictor.turn(BUCKETS, lambda: None, next(now_s))
        assert bench.store.needs_grace != is_sync
    bench.close()


def test_unknown_buckets_and_other_requests_of_a_ps_are_refused(bench: Bench) -> None:
    with pytest.raises(ProtocolError, match="bucket 3 of table 0"):
        bench.moving.handle(ForgetBucketsMsg(1, ((FIXED, 3),)))
    bench.moving.handle(KeepBucketsMsg(((FIXED, 1),)))
    peer = ProcessId("server", 1, 1)
    fetch: Envelope[DataMessage] = Envelope(peer, 0, BucketFetchMsg(1, FIXED, 1, "open"), ())
    assert len(bench.moving.answer(b"", fetch)) == 1
    with pytest.raises(ProtocolError, match="may only fetch buckets"):
        bench.moving.answer(b"", Envelope(peer, 0, DenseFetchMsg(1), ()))


@pytest.mark.parametrize("maps_rows", [False, True])
def test_rows_are_evicted_by_the_clock_and_progress_of_the_workers(tmp_path: Path, maps_rows: bool) -> None:
    """A worker that maps the rows may push none: its watermark shows its progress."""
    bench = Bench(tmp_path, evict_after_samples=1 << 16)
    keys = np.arange(100)
    bench.store.rows_for(DYNAMIC, keys, True, 0)
    session = Session(members={0: 1})
    told = SimpleNamespace(clock=1 << 20, committed=0, committed_of=lambda worker, incarnation: told.committed)
    dense = SimpleNamespace(samples_applied=lambda: 0)
    marks = Watermarks(bench.arena.directory)
    tables = bench.arena.model.tables
    now_s = itertools.count(1.0)
    evictor = Evictor(tables, bench.store, dense, told, session, marks)  # type: ignore[arg-type]
    evictor.turn(BUCKETS, lambda: None, next(now_s))
    assert (bench.store.rows_for(DYNAMIC, keys, False, 0) == -1).all()
    for _ in range(5):
        evictor.turn(BUCKETS, lambda: None, next(now_s))
    assert bench.store.needs_grace, "the worker may still hold the rows"
    for done in range(1, 9):
        if maps_rows:
            marks.note_begun(0, 1, done * GRACE_BATCHES + 1)
        else:
            told.committed = done * GRACE_BATCHES
        evictor.turn(BUCKETS, lambda: None, next(now_s))
    assert not bench.store.needs_grace
    bench.close()
