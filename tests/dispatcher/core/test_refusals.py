"""The journal has few lines about refused messages, even if there are many such messages."""

from __future__ import annotations

from elastichost.dispatcher.core.refusals import EVERY_S, CommandRefusals
from elastichost.runs.events import MessageRefused
from elastichost.runs.events.text import text_of


def test_the_first_refusal_is_noted_at_once_and_later_ones_are_counted() -> None:
    refusals = CommandRefusals()
    assert refusals.note(0.0) is None
    refusals.add("no command: 1")
    assert refusals.note(0.0) == MessageRefused("no command: 1")
    for number in range(2, 1002):
        refusals.add(f"no command: {number}")
        assert refusals.note(1.0) is None
    told = refusals.note(EVERY_S)
    assert told == MessageRefused("no command: 1001", 1000)
    assert text_of(told) == "1000 messages were refused; the last one: no command: 1001"
    assert refusals.note(3 * EVERY_S) is None, "no refusal is noted twice"
