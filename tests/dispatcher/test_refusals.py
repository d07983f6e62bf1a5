"""However many messages are refused, the journal has a few lines of it."""

from __future__ import annotations

from elastichost.dispatcher.refusals import EVERY_S, Refusals


def test_the_first_at_once_and_then_how_many() -> None:
    refusals = Refusals()
    assert refusals.note(0.0) == ""
    refusals.add("no command: 1")
    assert refusals.note(0.0) == "no command: 1"
    for number in range(2, 1002):
        refusals.add(f"no command: {number}")
        assert refusals.note(1.0) == ""
    assert refusals.note(EVERY_S) == "1000 messages were refused; the last: no command: 1001"
    assert refusals.note(3 * EVERY_S) == "", "nothing is said twice"
