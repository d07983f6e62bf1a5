"""Which reader reads what for a worker, and what is ordered again after a kill. Pure.

Rules
1. The worker takes batches in the order in which it has ordered them, so the result is the same for any number of
   readers.
2. A reader works on its orders in the order in which it got them, and their numbers rise. So the oldest order of all is
   the first one of its reader, and no reader waits for room behind a batch that the worker does not take yet.
3. When a reader is lost, all orders are recalled, those of the other readers too: a new *round* begins, and what was
   read in earlier rounds and not taken is dropped. The first order then begins behind the newest batch that the worker
   has taken. All others begin at their start: no batch of them was taken.
4. When the lost reader had the first order, its next batch may be what has ended it (`is_suspected`). The worker reads
   this batch itself, and nothing is sent until it has. If the batch ends the worker too, the ledger of samples suspects
   it, as it does without readers.

An order goes to the reader whose newest order is of the same unit, because a unit is decoded as a whole; otherwise to
the reader with the fewest orders.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

__all__ = ["OrderBook", "ReadingOrder"]


@dataclass(frozen=True, slots=True)
class ReadingOrder:
    """Positions [start, stop) of a unit, in batches of `batch_size`. shuffle_seed: None: in file order."""

    number: int
    unit: int
    start: int
    stop: int
    batch_size: int
    shuffle_seed: int | None
    min_samples: int


@dataclass(slots=True)
class _OpenOrder:
    order: ReadingOrder
    reader: int | None = None  # None: it is not sent


@dataclass(slots=True)
class OrderBook:
    """The open orders of one worker. Readers are named by numbers that are never used again. round, is_suspected: see
    rules 3 and 4."""

    round: int = 0
    is_suspected: bool = False
    _held: deque[_OpenOrder] = field(default_factory=deque)
    _units: dict[int, int | None] = field(default_factory=dict)  # reader -> unit of its newest order
    _newest: int = 0

    @property
    def readers(self) -> tuple[int, ...]:
        return tuple(self._units)

    @property
    def first(self) -> tuple[ReadingOrder, int | None] | None:
        """The oldest open order, and its reader (None: it is not sent). None: nothing is ordered."""
        return (self._held[0].order, self._held[0].reader) if self._held else None

    def add(
        self, unit: int, start: int, stop: int, batch_size: int, shuffle_seed: int | None, min_samples: int
    ) -> ReadingOrder:
        """Adds an order behind all others."""
        self._newest += 1
        order = ReadingOrder(self._newest, unit, start, stop, batch_size, shuffle_seed, min_samples)
        self._held.append(_OpenOrder(order))
        return order

    def joined(self, reader: int) -> None:
        """A reader has connected. It gets orders that are not sent yet."""
        self._units[reader] = None

    def lost(self, reader: int) -> None:
        """A reader is gone. Rules 3 and 4."""
        if self._units.pop(reader, self) is self:
            return
        if self._held and self._held[0].reader == reader:
            self.is_suspected = True
        self._recall()

    def withdraw(self) -> None:
        """Drops all orders."""
        self._held.clear()
        self.is_suspected = False
        self._recall()

    def _recall(self) -> None:
        self.round += 1
        for held in self._held:
            held.reader = None
        self._units = dict.fromkeys(self._units)

    def send(self) -> tuple[tuple[int, ReadingOrder], ...]:
        """The orders that are to be sent now, and the reader of each; they count as sent."""
        if not self._units or self.is_suspected:
            return ()
        sent: list[tuple[int, ReadingOrder]] = []
        for held in self._held:
            if held.reader is None:
                held.reader = self._choose(held.order.unit)
                self._units[held.reader] = held.order.unit
                sent.append((held.reader, held.order))
        return tuple(sent)

    def _choose(self, unit: int) -> int:
        counts = dict.fromkeys(self._units, 0)
        for held in self._held:
            if held.reader is not None:
                counts[held.reader] += 1
        return min(counts, key=lambda reader: (self._units[reader] != unit, counts[reader], reader))

    def took(self, stop: int) -> None:
        """The worker has taken the next batch of the first order, which ends at this position."""
        first = self._held[0]
        first.order = replace(first.order, start=stop)
        self.is_suspected = False

    def ended(self) -> None:
        """The worker has taken all batches of the first order."""
        self._held.popleft()
        self.is_suspected = False
