"""Writes the batches of a reader into its rings, and tells the worker."""

from __future__ import annotations

import time
from collections.abc import Callable

from elastichost.datasets.api import SampleBatch
from elastichost.wire.crash import crash_point
from elastichost.worker.readers.link import ReaderLink
from elastichost.worker.readers.messages import FromWorker, PublishedMsg, RingMsg
from elastichost.worker.readers.records import Bytes, Kind, Record, batch_record_bytes, write_batch, write_note
from elastichost.worker.readers.ring_memory import Ring

__all__ = ["Publisher"]

GROWTH = 1.25  # of a ring's places over the record for which it is made: batches with lists differ in size


class Publisher:
    """The rings of one connection. wait: waits for a message of the worker and handles it; False: the order that is
    being read is withdrawn. It raises LinkLostError.

    waited_s: seconds that this object has waited for room."""

    def __init__(self, link: ReaderLink[FromWorker], wait: Callable[[], bool]) -> None:
        self._link, self._wait = link, wait
        self._ring: Ring | None = None
        self.waited_s = 0.0

    def batch(self, batch: SampleBatch, record: Record) -> bool:
        """Publishes a batch. False: its order was withdrawn meanwhile. Raises LinkLostError."""
        return self._publish(batch_record_bytes(batch), lambda place: write_batch(place, batch, record))

    def note(self, record: Record, note: bytes = b"") -> bool:
        """Publishes a record without samples, as `batch`."""
        return self._publish(0, lambda place: write_note(place, record, note))

    def _publish(self, size: int, write: Callable[[Bytes], None]) -> bool:
        if self._ring is None or size > self._ring.place_bytes:
            self._ring = self._grown(self._ring, size)
        place = self._room(self._ring, gives_up=True)
        if place is None:
            return False
        write(place)
        crash_point("reader.batch.before_publish")
        self._ring.publish()
        self._link.hint(PublishedMsg())
        return True

    def _grown(self, before: Ring | None, size: int) -> Ring:
        """A ring for records of this size. The last record of the ring before says that it goes on in the new one."""
        ring = Ring.make(int(GROWTH * size))
        self._link.send(RingMsg(ring.places, ring.place_bytes), ring.descriptor)
        ring.close()
        if before is not None:
            place = self._room(before, gives_up=False)
            assert place is not None
            write_note(place, Record(Kind.MOVED, 0, 0))
            before.publish()
            self._link.hint(PublishedMsg())
        return ring

    def _room(self, ring: Ring, *, gives_up: bool) -> Bytes | None:
        """The next place of a ring, once it is free. gives_up: returns None when the order is withdrawn."""
        began_s = time.perf_counter()
        while (place := ring.free) is None:
            is_wanted = self._wait()
            if gives_up and not is_wanted:
                break
        self.waited_s += time.perf_counter() - began_s
        return place
