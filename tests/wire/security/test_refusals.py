"""Reports of refused messages are bounded."""

from __future__ import annotations

import pytest

from elastichost.wire.security import refusals as module
from elastichost.wire.security.refusals import MOST_LETTERS, MOST_TOLD, WINDOW_S, Refusal, RefusalLog, Refusals


def test_the_first_refusals_are_reported_and_later_ones_counted() -> None:
    refusals = Refusals()
    told = [refusals.note(f"message {number}", 100.0) for number in range(MOST_TOLD + 1000)]
    assert told[:2] == [Refusal("message 0"), Refusal("message 1")]
    assert [one for one in told if one is not None] == told[:MOST_TOLD]
    assert refusals.note("another", 100.0 + WINDOW_S) == Refusal("another", 1001)
    assert refusals.note("one more", 100.1 + WINDOW_S) == Refusal("one more")


def test_a_report_has_a_bounded_length() -> None:
    assert Refusals().note("x" * 10_000, 0.0) == Refusal("x" * MOST_LETTERS + "...")


def test_a_log_states_the_number_of_refused_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    log = RefusalLog()
    for number in range(MOST_TOLD + 3):
        log(f"message {number}")
    now_s[0] += WINDOW_S
    log("another")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "refused a message: message 0"
    assert lines[MOST_TOLD:] == ["refused 4 messages; the last: another"]
