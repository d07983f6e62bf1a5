"""The worker's end and the reader's end together, over real sockets and rings, in threads of one process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.sources.control import InputControl
from elastichost.errors import DataError
from elastichost.wire.control_work import SourceTroubleMsg
from elastichost.wire.facts import InputKnobs, Lease
from elastichost.worker.pipeline import LeaseFinished, Pipeline
from elastichost.worker.readers.link import ReaderLink, connect, wait_ready
from elastichost.worker.readers.messages import FromWorker, OrderMsg, RingMsg
from elastichost.worker.readers.pool import ReaderPool, share_of
from elastichost.worker.readers.records import Kind, Record, write_batch
from elastichost.worker.readers.ring_memory import Ring
from elastichost.worker.readers.service import ReadingService

WAIT_S = 20.0
Keys = tuple[int, npt.NDArray[np.int64]]  # the lease, and the keys of a batch
UNITS = tuple(Unit(number, 1000 * number, 1000, 0, number) for number in range(4))


class Numbers:
    """A reader whose keys are the global numbers of the samples. Position 666 of unit 3 is a bad row. From `grown` on,
    samples have many keys, so that batches need a larger ring."""

    def __init__(self, grown: int = 1000, starts: list[int] | None = None) -> None:
        self.grown = grown
        self.starts = starts if starts is not None else []

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
        self.starts.append(start)
        for begin in range(start, stop, batch_size):
            end = min(begin + batch_size, stop)
            if unit.index == 3 and begin <= 666 < end:
                raise DataError("row 666 is broken", hint="mend it")
            size, each = end - begin, 500 if begin >= self.grown else 1
            keys = np.repeat(unit.first_sample + np.arange(begin, end), each)
            column = np.zeros((size, 1), np.float32)
            yield SampleBatch(unit.index, begin, end, size, 0, column, keys, np.full(size, each, np.int32), column)


class Bed:
    """A pool of worker 0 with readers in threads."""

    def __init__(self, folder: Path, readers: int, grown: int = 1000) -> None:
        self.folder, self.grown = str(folder), grown
        self.control = InputControl()
        self.starts: list[int] = []  # of what the worker itself has read
        self.pool = ReaderPool(self.folder, 0, Numbers(), lambda: Numbers(self.grown, self.starts), self.control)
        self.pipeline: Pipeline[Keys] = Pipeline(
            self.pool, UNITS, 10, _prepared, control=self.control, orders=self.pool
        )
        self.readers: list[tuple[ReadingService, threading.Thread, InputControl]] = []
        for _ in range(readers):
            self.start()

    def start(self) -> None:
        control = InputControl()
        service = ReadingService(self.folder, 0, Numbers(self.grown), UNITS, control)
        thread = threading.Thread(target=service.run)
        thread.start()
        self.readers.append((service, thread, control))

    def end(self, number: int) -> None:
        service, thread, _ = self.readers.pop(number)
        service.close()
        thread.join(WAIT_S)
        assert not thread.is_alive()

    def add(self, number: int, unit: int, start: int, stop: int) -> None:
        self.pipeline.add(Lease(number, 0, unit, start, stop), None)

    def get(self) -> Keys | LeaseFinished:
        result = self.pipeline.get(WAIT_S)
        assert result is not None
        return result

    def close(self) -> None:
        self.pipeline.close()
        while self.readers:
            self.end(0)


def ordered(bed: Bed) -> tuple[ReaderLink[FromWorker], OrderMsg]:
    """A reader that does nothing, with the first order that it gets."""
    connection = connect(bed.folder, 0)
    assert connection is not None
    link: ReaderLink[FromWorker] = ReaderLink(connection, FromWorker)
    while not isinstance(message := (link.receive() or (None,))[0], OrderMsg):
        wait_ready((link.interest,), (), WAIT_S)
    return link, message


def _prepared(samples: SampleBatch, lease: Lease) -> Keys:
    return lease.lease_id, samples.keys


@pytest.fixture
def beds() -> Iterator[list[Bed]]:
    made: list[Bed] = []
    yield made
    for bed in made:
        bed.close()


@pytest.mark.parametrize("grown", [1000, 50])
def test_samples_arrive_once_and_in_order_while_readers_come_and_go(
    tmp_path: Path, beds: list[Bed], grown: int
) -> None:
    bed = Bed(tmp_path, 2, grown)
    beds.append(bed)
    leases = [(number, number % 3, start, start + 75) for number, start in enumerate(range(0, 750, 75))]
    for lease in leases:
        bed.add(*lease)
    found: list[int] = []
    for turn in range(2000):
        result = bed.get()
        if isinstance(result, LeaseFinished):
            if result.lease.lease_id == leases[-1][0]:
                break
            continue
        found += dict.fromkeys(result[1].tolist())
        if turn % 9 == 4:
            bed.start()
            bed.end(turn % 2)
    wanted = [1000 * unit + position for _, unit, start, stop in leases for position in range(start, stop)]
    assert found == wanted


def test_a_lease_that_is_added_again_after_a_drain_begins_at_its_start(tmp_path: Path, beds: list[Bed]) -> None:
    bed = Bed(tmp_path, 2)
    beds.append(bed)
    bed.add(1, 0, 0, 500)
    bed.add(2, 1, 0, 500)
    assert not isinstance(bed.get(), LeaseFinished)
    bed.pipeline.discard()
    bed.add(3, 0, 0, 500)
    result = bed.get()
    assert not isinstance(result, LeaseFinished)
    assert (result[0], result[1].tolist()) == (3, list(range(10)))


def test_the_error_of_a_reader_is_raised_by_its_worker_behind_the_batches_before(
    tmp_path: Path, beds: list[Bed]
) -> None:
    bed = Bed(tmp_path, 1)
    beds.append(bed)
    bed.add(1, 3, 650, 700)
    assert not isinstance(bed.get(), LeaseFinished)
    with pytest.raises(DataError, match="row 666 is broken"):
        bed.get()


def test_what_a_reader_has_published_before_its_end_is_taken(tmp_path: Path, beds: list[Bed]) -> None:
    bed = Bed(tmp_path, 0)
    beds.append(bed)
    bed.add(1, 0, 0, 500)
    link, order = ordered(bed)
    ring = Ring.make(1)
    for batch in itertools.islice(Numbers().batches(UNITS[0], 0, 500, 10), 2):
        place = ring.free
        assert place is not None
        write_batch(place, batch, Record(Kind.BATCH, order.round, order.number))
        ring.publish()
    with bed.pool._lock:  # the worker looks when both has happened
        link.send(RingMsg(ring.places, ring.place_bytes), ring.descriptor)
        link.close()
    ring.close()
    for number in range(3):
        result = bed.get()
        assert not isinstance(result, LeaseFinished)
        assert result[1].tolist() == list(range(10 * number, 10 * number + 10))
    assert bed.starts == [20], "the worker itself reads what comes next"


def test_a_batch_that_has_ended_a_reader_is_read_by_the_worker_itself(tmp_path: Path, beds: list[Bed]) -> None:
    bed = Bed(tmp_path, 0)
    beds.append(bed)
    bed.add(1, 3, 660, 700)  # its first batch is the bad row, as which stands what ends a process
    link, _ = ordered(bed)
    assert bed.starts == []
    link.close()
    with pytest.raises(DataError, match="row 666 is broken"):
        bed.get()
    assert bed.starts == [660]


def test_knobs_are_divided_among_readers_and_reach_them(tmp_path: Path, beds: list[Bed]) -> None:
    knobs = InputKnobs(connections=5, decode_threads=2, prefetch_batches=3, prefetch_bytes=100, range_bytes=8192)
    assert share_of(knobs, 4) == InputKnobs(1, 1, 3, 25, 8192)
    bed = Bed(tmp_path, 2)
    beds.append(bed)
    bed.add(1, 0, 0, 500)
    bed.get()
    _until(lambda: bed.control.readers == 2)
    bed.control.tune(knobs)
    bed.add(2, 1, 0, 500)
    while not isinstance(bed.get(), LeaseFinished):
        pass
    _until(lambda: all(control.knobs == share_of(knobs, 2) for _, _, control in bed.readers))


def test_what_the_stages_of_readers_did_and_their_troubles_arrive(tmp_path: Path, beds: list[Bed]) -> None:
    bed = Bed(tmp_path, 1)
    beds.append(bed)
    trouble = SourceTroubleMsg("stalled", "http://a", "no byte", 5.0, 3)
    bed.readers[0][2].tell(trouble)
    bed.readers[0][2].source.add(size_bytes=77, items=1)

    def is_told() -> bool:
        bed.add(0, 0, 0, 10)
        while not isinstance(bed.get(), LeaseFinished):
            pass
        return trouble in bed.control.take_troubles()

    _until(is_told)
    assert bed.control.take_stages(0)[0].bytes == 77


def _until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline_s
