"""A worker's behaviour when memory is short, and when the ages of rows are needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.kernels import SAMPLES_PER_STAMP, seen_stamp
from tests.worker.access.test_rows import Bench, batch, model

PLENTY = 1 << 40


@pytest.fixture(params=[False, True], ids=["direct", "served"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, model(), served=request.param, servers=1)
    one = np.array([10**6]), np.array([0, 1, 1, 1])
    made.pull.pull(*one, weights=False, create=True, clock=0)  # the answer shows that the PS has its buckets
    yield made
    made.servers.close()


def test_a_batch_waits_for_memory_and_goes_on_when_it_is_granted(bench: Bench) -> None:
    arena = bench.arena
    arena.allowance = arena.board.allowance(0)
    words = arena.board.server(0)
    was_answered = threading.Event()

    def grant_when_asked_again() -> None:
        while words.refused < 2 and not was_answered.wait(0.005):
            pass
        words.grant(PLENTY, PLENTY)

    supervisor = threading.Thread(target=grant_when_asked_again)
    supervisor.start()
    prepared = bench.rows.prepare(batch(1), lease_id=1, epoch=0, create=True, clock=0)
    was_answered.set()
    supervisor.join()
    assert words.refused >= 2, "the worker repeated its request"
    assert prepared.values.min() >= 0
    again = bench.rows.prepare(batch(1), lease_id=1, epoch=0, create=True, clock=0)
    assert np.array_equal(again.lengths, prepared.lengths)


def test_ids_are_left_out_of_their_bags_when_memory_is_full(bench: Bench) -> None:
    arena = bench.arena
    arena.allowance = arena.board.allowance(0)
    arena.board.leave_out(is_full=True)
    samples = batch(2)
    prepared = bench.rows.prepare(samples, lease_id=1, epoch=0, create=True, clock=0)
    whole = int(samples.lengths.sum())
    assert 0 < prepared.lengths.sum() < whole, "only ids of the dynamic table are left out"
    assert arena.board.server(0).left_out > 0
    arena.board.server(0).grant(PLENTY, PLENTY)
    prepared = bench.rows.prepare(samples, lease_id=1, epoch=0, create=True, clock=0)
    assert prepared.lengths.sum() == whole


def test_sightings_are_noted_only_after_they_are_requested(bench: Bench) -> None:
    arena, clock = bench.arena, 50 * SAMPLES_PER_STAMP
    seen = arena.seen_view(0)
    others = np.flatnonzero(seen)
    bench.rows.prepare(batch(3), lease_id=1, epoch=0, create=True, clock=0)
    held = np.setdiff1d(np.flatnonzero(seen), others)
    bench.rows.prepare(batch(3), lease_id=1, epoch=0, create=True, clock=clock)
    assert (seen[held] == seen_stamp(0)).all(), "sightings are not noted before they are needed"
    arena.board.note_seen()
    bench.rows.prepare(batch(3), lease_id=1, epoch=0, create=True, clock=clock)
    assert (seen[held] == seen_stamp(clock)).all()
