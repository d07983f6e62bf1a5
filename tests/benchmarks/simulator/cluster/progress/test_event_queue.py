"""Events come in order of time and of their scheduling, whether they are in the heap or in the column of ends."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.cluster.progress.columns import ROWS, JobColumns, new_row
from benchmarks.simulator.cluster.progress.event_queue import EventQueue

END, OTHER = 3, 1
TIMES = st.sampled_from([1.0, 2.0, 3.0, math.inf])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), TIMES), max_size=30))
def test_events_come_in_order(schedules: list[tuple[bool, int, float]]) -> None:
    """A schedule of an end replaces an earlier one of the same job."""
    columns = JobColumns(1)
    queue = EventQueue(columns, END)
    rows = [columns.take(100 + number, new_row(0.0)) for number in range(5)]
    expected: dict[tuple[int, int], tuple[float, int]] = {}  # (kind, payload) -> time, order
    order = 0
    for is_end, number, at_s in schedules:
        if is_end:
            queue.set_end(rows[number], at_s)
            expected.pop((END, 100 + number), None)
            if at_s == math.inf:
                continue
        elif at_s == math.inf:
            continue
        else:
            queue.push(at_s, OTHER, order)
        order += 1
        expected[(END, 100 + number) if is_end else (OTHER, order - 1)] = at_s, order
    found = []
    while (event := queue.peek()) is not None:
        queue.take(event)
        found.append((event[2], event[3]))
    assert found == sorted(expected, key=expected.__getitem__)


def test_rows_are_used_again() -> None:
    columns = JobColumns(2)
    rows = [columns.take(number, new_row(float(number))) for number in range(ROWS)]
    assert not columns.has_room and sorted(rows) == list(range(ROWS))
    columns.grow()
    assert columns.rows[rows[7], 0] == 7.0, "progress is kept"
    columns.free(rows[7])
    assert columns.take(99, new_row(0.0)) == rows[7] and columns.jobs[rows[7]] == 99
