"""The prefetch thread: order, bounds, discarded leases, errors; the thread always ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.remote import RemoteRate
from elastichost.datasets.sources.control import InputControl
from elastichost.errors import DataError
from elastichost.wire.facts import InputKnobs, Lease
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import NOTHING_PULLED
from elastichost.worker.pipeline import PREFETCH_BATCHES, LeaseFinished, Pipeline

UNITS = (Unit(0, 0, 1000, 0, 0), Unit(1, 1000, 1000, 0, 1))
WAIT_S = 20.0


def prepared(batch: SampleBatch, lease: Lease) -> PreparedBatch:
    empty = np.empty(0, dtype=np.int64)
    return PreparedBatch(batch, lease.lease_id, lease.epoch, empty, empty, empty, [], NOTHING_PULLED, 0.0)


class CountingReader:
    """A reader of empty batches at the right positions; position 666 is a bad row."""

    def __init__(self) -> None:
        self.read = 0
        self.progress = threading.Condition()

    def describe(self) -> DatasetDescription:
        raise NotImplementedError

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        none = np.empty((0, 0), dtype=np.float32)
        for begin in range(start, stop, batch_size):
            if begin == 666:
                raise DataError("row 666 is broken")
            end = min(begin + batch_size, stop)
            with self.progress:
                self.read += 1
                self.progress.notify_all()
            yield SampleBatch(
                unit.index, begin, end, end - begin, 0, none, np.empty(0, np.int64), np.empty(0, np.int32), none
            )


@pytest.fixture
def reader() -> CountingReader:
    return CountingReader()


@pytest.fixture
def pipeline(reader: CountingReader) -> Iterator[Pipeline]:
    made = Pipeline(reader, UNITS, 10, prepared)
    yield made
    made.close()


def lease(number: int, unit: int, start: int, stop: int) -> Lease:
    return Lease(lease_id=number, epoch=0, unit=unit, start=start, stop=stop)


def test_leases_come_in_order_each_followed_by_its_end(pipeline: Pipeline) -> None:
    pipeline.add(lease(1, 0, 0, 25), None)
    pipeline.add(lease(2, 1, 40, 50), None)
    seen = [pipeline.get(WAIT_S) for _ in range(6)]
    batches = [(b.lease_id, b.samples.start, b.samples.stop) for b in seen if isinstance(b, PreparedBatch)]
    assert batches == [(1, 0, 10), (1, 10, 20), (1, 20, 25), (2, 40, 50)]
    assert [type(item) for item in seen].index(LeaseFinished) == 3
    assert isinstance(seen[-1], LeaseFinished)


def test_the_thread_reads_ahead_within_a_bound(reader: CountingReader, pipeline: Pipeline) -> None:
    pipeline.add(lease(1, 0, 0, 1000), None)
    with reader.progress:
        assert reader.progress.wait_for(lambda: reader.read == PREFETCH_BATCHES + 1, WAIT_S)
    pipeline.get(WAIT_S)
    with reader.progress:
        assert reader.progress.wait_for(lambda: reader.read == PREFETCH_BATCHES + 2, WAIT_S)
    assert not pipeline.is_idle


def test_discarding_drops_the_leased_ranges(reader: CountingReader, pipeline: Pipeline) -> None:
    pipeline.add(lease(1, 0, 0, 1000), None)
    pipeline.get(WAIT_S)
    pipeline.discard()
    pipeline.add(lease(2, 1, 0, 10), None)
    result = pipeline.get(WAIT_S)
    assert isinstance(result, PreparedBatch) and result.lease_id == 2


def test_errors_of_the_thread_reach_the_loop(pipeline: Pipeline) -> None:
    pipeline.add(lease(1, 0, 666, 700), None)
    with pytest.raises(DataError, match="666"):
        pipeline.get(WAIT_S)


def test_a_full_pipeline_still_closes(reader: CountingReader) -> None:
    made = Pipeline(reader, UNITS, 10, prepared)
    made.add(lease(1, 0, 0, 1000), None)
    with reader.progress:
        assert reader.progress.wait_for(lambda: reader.read > PREFETCH_BATCHES, WAIT_S)
    made.close()
    assert not made._thread.is_alive()


def test_waiting_for_a_slow_reader_counts_as_reading(reader: CountingReader) -> None:
    made = Pipeline(reader, UNITS, 10, prepared, remote=RemoteRate(0.0, latency_s=0.05))
    made.add(lease(1, 0, 0, 10), None)
    assert isinstance(made.get(WAIT_S), PreparedBatch)
    assert made.take_read_s() > 0.04
    made.close()


def pipeline_that_waits(reader: CountingReader) -> Pipeline[PreparedBatch]:
    """A pipeline whose reader returns its first byte after an hour."""
    made = Pipeline(reader, UNITS, 10, prepared, remote=RemoteRate(0.0, latency_s=3600.0))
    made.add(lease(1, 0, 0, 1000), None)
    with reader.progress:
        assert reader.progress.wait_for(lambda: reader.read == 1, WAIT_S)
    return made


def test_a_pipeline_of_a_slow_reader_closes_at_once(reader: CountingReader) -> None:
    made = pipeline_that_waits(reader)
    assert made.get(0.0) is None
    made.close(WAIT_S)
    assert not made._thread.is_alive()


def test_a_slow_lease_that_is_discarded_does_not_delay_the_next(reader: CountingReader) -> None:
    made = pipeline_that_waits(reader)
    made.discard()
    made.add(lease(2, 1, 7, 7), None)
    finished = made.get(WAIT_S)
    assert isinstance(finished, LeaseFinished) and finished.lease.lease_id == 2
    assert reader.read == 1
    made.close()


# --- knobs ----------------------------------------------------------------------------------------------------


def results_of(pipeline: Pipeline[PreparedBatch], count: int) -> list[tuple[int, int, int] | int]:
    """The next results: (lease, start, stop) of a batch, the number of a lease that has ended."""
    found: list[tuple[int, int, int] | int] = []
    while len(found) < count:
        result = pipeline.get(WAIT_S)
        assert result is not None
        is_end = isinstance(result, LeaseFinished)
        found.append(result.lease.lease_id if is_end else (result.lease_id, result.samples.start, result.samples.stop))
    return found


def test_batches_wait_within_the_bound_of_the_knob_and_keep_their_order(reader: CountingReader) -> None:
    control = InputControl(InputKnobs(prefetch_batches=4, prefetch_bytes=1 << 20))
    made = Pipeline(reader, UNITS, 10, prepared, control=control)
    made.add(lease(1, 0, 0, 300), None)
    made.add(lease(2, 1, 0, 20), None)
    bound = PREFETCH_BATCHES + 1 + 4 + 1  # prepared, in preparation, waiting, and the one that waits for room
    with reader.progress:
        assert reader.progress.wait_for(lambda: reader.read == bound, WAIT_S)
    assert not made.is_idle
    expected = [(1, start, start + 10) for start in range(0, 300, 10)]
    assert results_of(made, 34) == [*expected, 1, (2, 0, 10), (2, 10, 20), 2]
    made.close()


@settings(max_examples=25, deadline=None)
@given(knobs=st.lists(st.tuples(st.integers(1, 32), st.integers(0, 8), st.integers(0, 4000)), min_size=1, max_size=40))
def test_knobs_that_change_all_the_time_change_neither_order_nor_number_of_batches(
    knobs: list[tuple[int, int, int]],
) -> None:
    reader, control = CountingReader(), InputControl()
    made = Pipeline(reader, UNITS, 10, prepared, control=control)
    made.add(lease(1, 0, 0, 200), None)
    made.add(lease(2, 1, 0, 200), None)
    seen: list[tuple[int, int, int] | int] = []
    for turn in range(42):
        connections, batches, size_bytes = knobs[turn % len(knobs)]
        control.tune(InputKnobs(connections, prefetch_batches=batches, prefetch_bytes=size_bytes))
        seen += results_of(made, 1)
    assert seen == [x for n in (1, 2) for x in (*((n, start, start + 10) for start in range(0, 200, 10)), n)]
    made.close()
    assert control.budget.held_bytes == 0


def test_a_pipeline_that_is_discarded_gives_its_memory_back(reader: CountingReader) -> None:
    control = InputControl(InputKnobs(prefetch_batches=8, prefetch_bytes=1 << 20))
    made = Pipeline(reader, UNITS, 10, prepared, control=control)
    made.add(lease(1, 0, 0, 1000), None)
    made.get(WAIT_S)
    made.discard()
    made.add(lease(2, 1, 0, 10), None)
    assert results_of(made, 2) == [(2, 0, 10), 2]
    assert control.budget.held_bytes == 0
    made.close()


def test_an_error_comes_after_the_batches_that_were_read_before_it(reader: CountingReader) -> None:
    control = InputControl(InputKnobs(prefetch_batches=8, prefetch_bytes=1 << 20))
    made = Pipeline(reader, UNITS, 10, prepared, control=control)
    made.add(lease(1, 0, 626, 700), None)
    assert results_of(made, 4) == [(1, 626, 636), (1, 636, 646), (1, 646, 656), (1, 656, 666)]
    with pytest.raises(DataError, match="666"):
        made.get(WAIT_S)
    made.close()


def test_an_error_of_the_thread_that_prepares_reaches_the_loop(reader: CountingReader) -> None:
    def failing(batch: SampleBatch, of: Lease) -> PreparedBatch:
        if batch.start == 20:
            raise DataError("no row for it")
        return prepared(batch, of)

    made = Pipeline(reader, UNITS, 10, failing, control=InputControl(InputKnobs(prefetch_batches=8)))
    made.add(lease(1, 0, 0, 100), None)
    assert results_of(made, 2) == [(1, 0, 10), (1, 10, 20)]
    with reader.progress:  # the thread that reads goes on, and what it reads waits in vain to be prepared
        assert reader.progress.wait_for(lambda: reader.read == 10, WAIT_S)
    with pytest.raises(DataError, match="no row"):
        made.get(WAIT_S)
    made.close()


def test_waiting_for_the_source_is_no_cpu_time(reader: CountingReader) -> None:
    made = Pipeline(reader, UNITS, 10, prepared, remote=RemoteRate(0.0, latency_s=0.2))
    made.add(lease(1, 0, 0, 10), None)
    assert results_of(made, 2) == [(1, 0, 10), 1]
    source, decode, _, train = made.take_stages()
    assert decode.source_s >= 0.2 and decode.cpu_s < 0.1
    assert source.first_byte_s == 0.2
    assert train.empty_s >= 0.1
    made.close()


def test_what_a_reader_does_before_its_first_batch_counts_as_reading() -> None:
    class Eager(CountingReader):
        """Decodes when it is asked, and not when the first batch is taken."""

        def batches(self, *arguments: Any) -> Iterator[SampleBatch]:
            until_s = time.thread_time() + 0.05
            while time.thread_time() < until_s:
                pass
            return super().batches(*arguments)

    made = Pipeline(Eager(), UNITS, 10, prepared)
    made.add(lease(1, 0, 0, 10), None)
    assert results_of(made, 2) == [(1, 0, 10), 1]
    assert made.take_stages()[1].cpu_s >= 0.05
    made.close()
