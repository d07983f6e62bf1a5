"""Evicted rows are reused only when no worker can still use them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.ps.rows.eviction import GRACE_BATCHES, EvictionRounds
from elastichost.specs import TableSpec
from elastichost.wire.facts import Lease
from elastichost.worker.channels.exchange import WINDOW
from elastichost.worker.pipeline import PREFETCH_BATCHES, Pipeline

PATIENCE_S = 20.0


def table(index: int, age: int) -> TableSpec:
    name = f"t{index}"
    return TableSpec(name, index, (name,), "int", rows=0, evict_after_samples=age)


def test_only_tables_with_an_age_have_rounds_and_at_most_a_quarter_late() -> None:
    rounds = EvictionRounds([table(0, 0), table(1, 1000)])
    assert rounds.due(999) == ()
    assert rounds.due(1000) == (1,)
    assert rounds.due(1249) == ()
    assert rounds.due(1250) == (1,)


def test_grace_lasts_until_every_worker_has_committed_enough_batches() -> None:
    rounds = EvictionRounds([table(0, 10)])
    assert not rounds.grace_is_over({})
    rounds.begin_grace({0: (1, 5), 1: (1, 9)})
    rounds.begin_grace({0: (1, 7), 1: (1, 11)})  # a grace period is under way
    assert not rounds.grace_is_over({0: (1, 5 + GRACE_BATCHES), 1: (1, 10)})
    assert rounds.grace_is_over({0: (1, 5 + GRACE_BATCHES), 1: (1, 9 + GRACE_BATCHES)})
    assert not rounds.grace_is_over({0: (1, 99), 1: (1, 99)})


class Lookups:
    """A real prefetch thread of a worker that counts the batches whose rows it has looked up."""

    def __init__(self) -> None:
        self._made = threading.Condition()
        self.count = 0
        units = (Unit(0, 0, 1000, 0, 0),)
        self._pipeline: Pipeline[int] = Pipeline(self, units, 10, self._look_up)
        self._pipeline.add(Lease(1, 0, 0, 0, 1000), None)

    def describe(self) -> DatasetDescription:
        raise NotImplementedError

    def batches(
        self, unit: Unit, start: int, stop: int, batch_size: int, shuffle_seed: int | None = None, _: int = 1
    ) -> Iterator[SampleBatch]:
        none, no_keys = np.empty((0, 0), np.float32), np.empty(0, np.int64)
        for begin in range(start, stop, batch_size):
            count = min(batch_size, stop - begin)
            yield SampleBatch(unit.index, begin, begin + count, count, 0, none, no_keys, np.empty(0, np.int32), none)

    def _look_up(self, samples: SampleBatch, lease: Lease) -> int:
        with self._made:
            self.count += 1
            self._made.notify_all()
            return self.count

    def take(self) -> int:
        """The training loop takes the next batch."""
        found = self._pipeline.get(PATIENCE_S)
        assert isinstance(found, int)
        return found

    def reach(self, count: int, within_s: float) -> bool:
        with self._made:
            return self._made.wait_for(lambda: self.count >= count, within_s)

    def close(self) -> None:
        self._pipeline.close()


def test_grace_outlasts_all_batches_that_a_worker_can_have_looked_up() -> None:
    """Nothing is committed when a row is evicted. The worker has the maximal number of outstanding commits, one batch
    that is computed, and a prefetch thread that waits for room. The grace period must outlast all of these batches."""
    lookups, rounds = Lookups(), EvictionRounds([table(0, 10)])
    in_hand = [lookups.take() for _ in range(WINDOW + 1)][-1]
    held = in_hand + PREFETCH_BATCHES + 1
    assert lookups.reach(held, PATIENCE_S)
    assert not lookups.reach(held + 1, within_s=0.1), "the thread waits for room with one more batch"
    lookups.close()
    rounds.begin_grace({0: (1, 0)})
    for committed in range(held):
        assert not rounds.grace_is_over({0: (1, committed)}), "a row could be used again while the worker still uses it"
    assert rounds.grace_is_over({0: (1, GRACE_BATCHES)})


def test_grace_does_not_wait_for_workers_that_were_replaced_or_ended() -> None:
    rounds = EvictionRounds([table(0, 10)])
    rounds.begin_grace({0: (1, 5), 1: (1, 9)})
    assert rounds.grace_is_over({0: (2, 0)})


def test_an_age_that_changes_brings_the_next_round_at_once() -> None:
    rounds = EvictionRounds([table(0, 0), table(1, 100_000)])
    rounds.set_age(0, 1000)
    assert rounds.due(999) == ()
    assert rounds.due(5000) == (0,)
    rounds.set_age(0, 1000)
    assert rounds.due(5249) == ()
    rounds.set_age(0, 4000)
    assert rounds.due(5249) == (0,)
    assert rounds.due(6248) == ()
    rounds.set_age(1, 5000)
    assert rounds.due(6248) == (1,)
    rounds.set_age(0, 0)
    rounds.set_age(1, 0)
    assert rounds.due(1 << 40) == ()
    rounds.set_age(0, 0)
