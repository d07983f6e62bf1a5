"""The events of a simulation in order of their time: a heap, and in a column the ends of jobs.

The end of a job moves with each change of its rate, some hundred times for each job. In a heap each of these times
would stay until it passes, so the ends are a column of which the first is searched.
"""

from __future__ import annotations

import heapq
import math

from benchmarks.simulator.cluster.progress import kernel
from benchmarks.simulator.cluster.progress.columns import JobColumns

__all__ = ["Event", "EventQueue"]

Event = tuple[float, int, int, int, int]  # at_s, order, kind, payload, version


class EventQueue:
    """order: of the last event that was scheduled; events of the same time happen in the order of their scheduling."""

    def __init__(self, columns: JobColumns, end: int) -> None:
        """end: the kind of the events in the column; their payload is the job."""
        self.order = 0
        self._columns, self._end = columns, end
        self._heap: list[Event] = []

    def push(self, at_s: float, kind: int, payload: int, version: int = 0) -> None:
        self.order += 1
        heapq.heappush(self._heap, (at_s, self.order, kind, payload, version))

    def push_at(self, at_s: float, order: int, kind: int, payload: int, version: int) -> None:
        """Schedules an event whose order was counted before."""
        heapq.heappush(self._heap, (at_s, order, kind, payload, version))

    def set_end(self, index: int, at_s: float) -> None:
        """Schedules the end of the job with this row, instead of an earlier schedule; inf: it does not end."""
        self._columns.ends_s[index] = at_s
        if at_s < math.inf:
            self.order += 1
            self._columns.orders[index] = self.order

    def peek(self) -> Event | None:
        """The next event; None: there is none."""
        columns, heap = self._columns, self._heap
        index = kernel.first_end(columns.ends_s, columns.orders)
        at_s = columns.ends_s.item(index)
        if heap and heap[0][:2] < (at_s, columns.orders.item(index)):
            return heap[0]
        if at_s == math.inf:
            return None
        return at_s, columns.orders.item(index), self._end, columns.jobs.item(index), index

    def take(self, event: Event) -> None:
        """Removes the event that `peek` returned."""
        if event[2] == self._end:
            self._columns.ends_s[event[4]] = math.inf
        else:
            heapq.heappop(self._heap)
