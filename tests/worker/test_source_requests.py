"""A worker that waits for its source goes on reading control messages, and says when its patience is over."""

from __future__ import annotations

import threading

import pytest

from elastichost.config.sections.input import InputSettings
from elastichost.datasets.sources.single_requests import STALL_S, tried
from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.wire.control_work import SourceTroubleMsg
from elastichost.worker.channels.channel import StoppedError
from elastichost.worker.source_requests import PatientRequests


def test_control_messages_are_read_while_a_request_waits_for_bytes() -> None:
    may_answer, turns = threading.Event(), []

    def pump() -> None:
        turns.append(1)
        if len(turns) == 3:
            may_answer.set()

    waiting = PatientRequests(InputSettings(), lambda told: None, pump)
    assert waiting.call(may_answer.wait)
    assert len(turns) >= 3


def test_a_footer_over_one_slow_connection_does_not_count_as_stalled() -> None:
    for stall_s, wanted in ((0.3, STALL_S), (60.0, 60.0)):
        assert PatientRequests(InputSettings(stall_s=stall_s), lambda told: None, lambda: None).stall_s == wanted


def test_a_stop_ends_the_waiting_for_bytes_and_between_requests() -> None:
    def pump() -> None:
        raise StoppedError("stop")

    waiting = PatientRequests(InputSettings(), lambda told: None, pump)
    never = threading.Event()
    with pytest.raises(StoppedError):
        waiting.call(never.wait)
    never.set()
    with pytest.raises(StoppedError):
        waiting.pause(60.0)


def test_a_source_is_told_to_be_gone_once_and_is_waited_for_all_the_same() -> None:
    told: list[SourceTroubleMsg] = []
    failures = iter(range(5))

    def request() -> int:
        assert waiting.is_failing == bool(told)
        for _ in failures:
            raise SourceError("reset", "nobody there")
        return 7

    waiting = PatientRequests(InputSettings(patience_s=1e-9), told.append, lambda: None)
    waiting.pause = lambda seconds: None  # type: ignore[method-assign]
    assert tried("s3://b/a", request, waiting) == 7
    assert [one.trouble for one in told] == ["reset", "gone", "recovered"]
    assert not waiting.is_failing
