"""Memory in which one reader publishes records, and from which one worker takes them in order.

A ring belongs to one connection between one incarnation of a worker and one of a reader. It has no name in any file
system: the kernel frees it when both have ended, however they end. Its writer is the reader; the worker writes only the
words that give places back.

    words    for each place the number of the record that was published in it last, and of the one taken from it last
    places   record n (from 1) lies in place (n - 1) % places

Record n is written when record n - places was taken, and published by one store of n into the word of its place. So a
record that a killed reader has half written is never seen: the word still has the number before.
"""

from __future__ import annotations

import mmap
import os

import numpy as np

from elastichost.arena.words import announce, load_word
from elastichost.host.machine import PAGE_BYTES
from elastichost.worker.readers.records import Bytes

__all__ = ["PLACES", "Ring"]

PLACES = 4  # records that may wait; one more batch is with the worker
LEAST_PLACE_BYTES = 16 * 1024  # the report of an error fits
_STRIDE = 8  # words from one place to the next: each has a cache line of its own


class Ring:
    """Both ends map the same memory. descriptor: of the memory; `close` closes it. The mapping lives as long as arrays
    of it do."""

    def __init__(self, descriptor: int, places: int, place_bytes: int) -> None:
        self.descriptor, self.places, self.place_bytes = descriptor, places, place_bytes
        self._mapped = mmap.mmap(descriptor, size_of(places, place_bytes))
        self._bytes = np.frombuffer(self._mapped, dtype=np.uint8)
        words = 2 * places * _STRIDE
        self._words = self._bytes[: 8 * words].view(np.int64)
        self._newest = 0  # the reader: published; the worker: taken

    @classmethod
    def make(cls, place_bytes: int, places: int = PLACES) -> Ring:
        """A new ring. place_bytes: of the largest record, rounded up to whole pages."""
        place_bytes = -(-max(place_bytes, LEAST_PLACE_BYTES) // PAGE_BYTES) * PAGE_BYTES
        descriptor = os.memfd_create("elastichost-reader", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size_of(places, place_bytes))
        return cls(descriptor, places, place_bytes)

    def close(self) -> None:
        """Closes the descriptor; the memory stays mapped as long as it is used."""
        os.close(self.descriptor)

    # --- the reader -----------------------------------------------------------------------------------------

    @property
    def free(self) -> Bytes | None:
        """The place of the next record, uint8 [place_bytes]; None: its last record was not taken yet."""
        place = self._newest % self.places
        if load_word(self._words, self._taken(place)) < self._newest + 1 - self.places:
            return None
        return self._place(place)

    def publish(self) -> None:
        """Publishes the record that was written into `free`."""
        self._newest += 1
        announce(self._words, self._published((self._newest - 1) % self.places), self._newest)

    # --- the worker -----------------------------------------------------------------------------------------

    @property
    def next(self) -> Bytes | None:
        """The next record, uint8 [place_bytes]; None: it is not published yet."""
        place = self._newest % self.places
        if load_word(self._words, self._published(place)) != self._newest + 1:
            return None
        return self._place(place)

    def take(self) -> None:
        """Gives the place of `next` back."""
        self._newest += 1
        announce(self._words, self._taken((self._newest - 1) % self.places), self._newest)

    def _published(self, place: int) -> int:
        return place * _STRIDE

    def _taken(self, place: int) -> int:
        return (self.places + place) * _STRIDE

    def _place(self, place: int) -> Bytes:
        begin = size_of(place, self.place_bytes, self.places)
        return self._bytes[begin : begin + self.place_bytes]


def size_of(places: int, place_bytes: int, words_of: int | None = None) -> int:
    """Bytes of the words of `words_of` places (None: of `places`) and of `places` places."""
    words = 2 * (places if words_of is None else words_of) * _STRIDE * 8
    return -(-words // PAGE_BYTES) * PAGE_BYTES + places * place_bytes
