"""Requests that one thread makes and waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from elastichost.datasets.sources.patience import SourceHealth
from elastichost.datasets.sources.single_requests import TRIES, PatientPolicy, RequestPolicy, tried
from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.errors import DataError, SourceGoneError
from elastichost.wire.control_work import SourceTroubleMsg


class Impatient(RequestPolicy):
    """Waits no time. told: what was told; patient_for: tries that it makes."""

    def __init__(self, patient_for: int = TRIES) -> None:
        super().__init__()
        self.told: list[SourceTroubleMsg] = []
        self.pauses: list[float] = []
        self._patient_for = patient_for

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def tell(self, trouble: SourceTroubleMsg) -> None:
        self.told.append(trouble)

    def is_over(self, tries: int, health: SourceHealth, gone: SourceTroubleMsg) -> bool:
        return tries >= self._patient_for


def failing(times: int) -> Callable[[], int]:
    answers = iter([SourceError("reset", "gone")] * times)

    def request() -> int:
        for error in answers:
            raise error
        return 7

    return request


def test_a_request_is_made_again_and_the_trouble_and_its_end_are_told() -> None:
    waiting = Impatient()
    assert tried("s3://b/a", failing(3), waiting) == 7
    assert [one.trouble for one in waiting.told] == ["reset", "recovered"]
    assert waiting.pauses == [0.1, 0.2, 0.4]


def test_a_request_that_succeeds_tells_nothing() -> None:
    waiting = Impatient()
    assert tried("s3://b/a", failing(0), waiting) == 7
    assert waiting.told == [] and waiting.pauses == []


def test_before_a_run_the_source_is_given_up_after_a_few_tries() -> None:
    assert not RequestPolicy().is_over(TRIES - 1, SourceHealth(0.0), SourceTroubleMsg("gone", ""))
    assert RequestPolicy().is_over(TRIES, SourceHealth(0.0), SourceTroubleMsg("gone", ""))
    with pytest.raises(SourceGoneError, match="s3://b/a: cannot be read"):
        tried("s3://b/a", failing(99), Impatient())


def test_a_verb_gives_a_source_up_when_it_has_given_no_byte_for_the_time() -> None:
    told: list[SourceTroubleMsg] = []
    waiting = PatientPolicy(60.0, told.append)
    gone, now_s = SourceTroubleMsg("gone", ""), time.monotonic()
    assert not waiting.is_over(999, SourceHealth(now_s, is_failing=True), gone)
    assert not waiting.is_over(TRIES - 1, SourceHealth(now_s - 61.0, is_failing=True), gone)
    assert waiting.is_over(TRIES, SourceHealth(now_s - 61.0, is_failing=True), gone)
    assert tried("s3://b/a", failing(1), waiting) == 7
    assert [one.trouble for one in told] == ["reset", "recovered"]


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    def request() -> int:
        raise DataError("no such file")

    waiting = Impatient()
    with pytest.raises(DataError, match="no such file"):
        tried("s3://b/a", request, waiting)
    assert waiting.pauses == []


def test_a_source_that_gives_some_bytes_each_time_is_not_given_up() -> None:
    arrived = 0

    def request() -> int:
        nonlocal arrived
        if arrived == 10 * TRIES:
            return arrived
        arrived += 1
        raise SourceError("reset", "cut")

    waiting = Impatient()
    assert tried("s3://b/a", request, waiting, lambda: arrived) == 10 * TRIES
    assert set(waiting.pauses) == {0.1}, "each cut is the first one"
    with pytest.raises(SourceGoneError):
        tried("s3://b/a", failing(99), Impatient(), lambda: arrived)
