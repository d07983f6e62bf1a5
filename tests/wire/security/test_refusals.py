"""Refused messages are told of, but not each of thousands."""

from __future__ import annotations

from elastichost.wire.security.refusals import MOST_LETTERS, MOST_TOLD, WINDOW_S, Refusals


def test_the_first_few_are_told_and_then_how_many_more_there_were() -> None:
    refusals = Refusals()
    told = [refusals.note(f"message {number}", 100.0) for number in range(MOST_TOLD + 1000)]
    assert told[:2] == ["message 0", "message 1"]
    assert [text for text in told if text] == told[:MOST_TOLD]
    assert refusals.note("another", 100.0 + WINDOW_S) == "another (and 1000 others before it, not told one by one)"
    assert refusals.note("one more", 100.1 + WINDOW_S) == "one more"
    assert refusals.total == MOST_TOLD + 1002


def test_what_is_told_has_an_end() -> None:
    assert Refusals().note("x" * 10_000, 0.0) == "x" * MOST_LETTERS + "..."
