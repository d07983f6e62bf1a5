"""Units that are decoded ahead: the same units, each once, within the budget, whatever the knobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.datasets.api import Unit
from elastichost.datasets.decoded import DecodedUnit
from elastichost.datasets.reader import Inspection, ValueFindings
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.read_ahead import ReadAhead, decoded_bytes
from elastichost.errors import DataError
from elastichost.specs import TableSpec
from elastichost.wire.facts import InputKnobs

WAIT_S = 20.0
SAMPLES = 100
UNIT_BYTES = SAMPLES * 8  # dense and labels
STORED_BYTES = 50
UNITS = tuple(Unit(index, index * SAMPLES, SAMPLES, 0, index) for index in range(12))


class Counting:
    """A decoder whose units hold their own number. Unit 11 is damaged. It counts what it decodes."""

    def __init__(self) -> None:
        self.decoded: list[int] = []
        self.progress = threading.Condition()

    def inspect(self) -> Inspection:
        raise NotImplementedError

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        raise NotImplementedError

    def stored_bytes(self, unit: Unit) -> float:
        return STORED_BYTES

    def decode(self, unit: Unit) -> DecodedUnit:
        with self.progress:
            self.decoded.append(unit.index)
            self.progress.notify_all()
        if unit.index == 11:
            raise DataError("unit 11 is damaged")
        ones = np.full((unit.samples, 1), unit.index, dtype=np.float32)
        return DecodedUnit(unit.samples, ones, ones.copy(), ())

    def wait_for(self, count: int) -> bool:
        with self.progress:
            return self.progress.wait_for(lambda: len(self.decoded) >= count, WAIT_S)


@pytest.fixture
def control() -> Iterator[InputControl]:
    made = InputControl(InputKnobs(decode_threads=2, prefetch_bytes=1 << 20))
    yield made
    made.close()


def test_the_next_unit_is_decoded_before_it_is_asked_for(control: InputControl) -> None:
    inner = Counting()
    ahead = ReadAhead(inner, control)
    ahead.decode(UNITS[0])
    ahead.expect(UNITS[1])
    assert inner.wait_for(2)
    assert ahead.decode(UNITS[1]).dense[0, 0] == 1
    assert inner.decoded == [0, 1]
    assert control.budget.held_bytes == 0


def test_what_a_unit_ahead_is_charged_with_is_told_before_any_is_decoded_ahead() -> None:
    """The tuner needs it to give enough bytes for one."""
    control = InputControl(InputKnobs())
    inner = Counting()
    ahead = ReadAhead(inner, control)
    ahead.decode(UNITS[0])
    told = {stage.stage: stage.unit_bytes for stage in control.take_stages(0)}["decode"]
    assert told >= UNIT_BYTES + STORED_BYTES
    control.tune(InputKnobs(prefetch_bytes=told))
    ahead.expect(UNITS[1])
    assert inner.wait_for(2)  # in its thread: these bytes are enough
    control.close()


@pytest.mark.parametrize("bound", [0, UNIT_BYTES])
def test_nothing_is_decoded_ahead_without_memory_for_it(bound: int) -> None:
    control, inner = InputControl(InputKnobs(decode_threads=4, prefetch_bytes=bound)), Counting()
    ahead = ReadAhead(inner, control)
    for unit in UNITS[:5]:
        ahead.expect(unit)
    assert [ahead.decode(unit).dense[0, 0] for unit in UNITS[:5]] == [0, 1, 2, 3, 4]
    assert inner.decoded == [0, 1, 2, 3, 4]
    assert control.budget.most_bytes == 0
    control.close()


def test_more_memory_is_used_as_soon_as_it_is_given() -> None:
    control, inner = InputControl(InputKnobs(prefetch_bytes=0)), Counting()
    ahead = ReadAhead(inner, control)
    ahead.decode(UNITS[0])
    ahead.expect(UNITS[1])
    control.tune(InputKnobs(prefetch_bytes=1 << 20))
    assert inner.wait_for(2)
    control.close()


@settings(max_examples=30, deadline=None)
@given(
    order=st.lists(st.integers(0, 10), min_size=1, max_size=15),
    threads=st.integers(1, 4),
    units_ahead=st.integers(0, 4),
    forgets=st.lists(st.booleans(), min_size=15, max_size=15),
)
def test_every_order_of_units_gives_the_units_asked_for_within_the_budget(
    order: list[int], threads: int, units_ahead: int, forgets: list[bool]
) -> None:
    bound = units_ahead * int(1.1 * UNIT_BYTES + STORED_BYTES)
    control = InputControl(InputKnobs(decode_threads=threads, prefetch_bytes=bound))
    ahead = ReadAhead(Counting(), control)
    for place, number in enumerate(order):
        for following in order[place : place + 3]:
            ahead.expect(UNITS[following])
        if forgets[place]:
            ahead.forget()
        assert ahead.decode(UNITS[number]).dense[0, 0] == number
    ahead.forget()
    control.close()
    assert control.budget.most_bytes <= bound


def test_the_error_of_a_unit_is_raised_where_it_is_asked_for(control: InputControl) -> None:
    inner = Counting()
    ahead = ReadAhead(inner, control)
    ahead.decode(UNITS[0])
    ahead.expect(UNITS[11])
    assert inner.wait_for(2)
    with pytest.raises(DataError, match="unit 11"):
        ahead.decode(UNITS[11])
    assert control.budget.held_bytes == 0


def test_a_unit_that_is_larger_than_all_before_is_decoded_again_and_not_held(control: InputControl) -> None:
    class Larger(Counting):
        def decode(self, unit: Unit) -> DecodedUnit:
            small = super().decode(unit)
            if unit.index == 0:
                return small
            return DecodedUnit(small.samples, np.zeros((small.samples, 1000), dtype=np.float32), small.labels, ())

    inner = Larger()
    ahead = ReadAhead(inner, control)
    ahead.decode(UNITS[0])
    ahead.expect(UNITS[1])
    assert inner.wait_for(2)
    assert decoded_bytes(ahead.decode(UNITS[1])) > UNIT_BYTES
    assert inner.decoded == [0, 1, 1]
    assert control.budget.most_bytes <= int(1.1 * UNIT_BYTES) + STORED_BYTES
