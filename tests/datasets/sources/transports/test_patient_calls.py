"""Calls that block for longer than they are waited for."""

from __future__ import annotations

import threading

import pytest

from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.datasets.sources.transports.patient_calls import MOST_LATE, PatientCalls


def test_a_call_gives_its_result_or_raises_its_error() -> None:
    calls = PatientCalls(30.0)
    assert calls.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 // 0)


def test_late_calls_are_left_and_their_number_is_bounded() -> None:
    calls, may_end, begun = PatientCalls(0.02), threading.Event(), []

    def blocked() -> None:
        begun.append(threading.current_thread())
        may_end.wait()

    for _ in range(MOST_LATE + 4):
        with pytest.raises(SourceError, match="no answer"):
            calls.call(blocked)
    assert len(begun) == MOST_LATE + 1
    may_end.set()
    for thread in begun:
        thread.join()
    assert PatientCalls(30.0).call(lambda: 1) == 1
    calls._limit_s = 30.0
    assert calls.call(lambda: 2) == 2
