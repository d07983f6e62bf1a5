"""The same request to many files: each is answered once, also when the source fails on the way."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from elastichost.datasets.files.many_requests import CONNECTIONS, requested
from elastichost.datasets.sources.single_requests import RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError, SourceGoneError

COUNT = 200
URLS = [f"https://data.example/{number}" for number in range(COUNT)]
STORES = OpenStores(1.0)


class Quick(RequestPolicy):
    """Does not wait. pauses: how often it would have."""

    pauses = 0

    def pause(self, seconds: float) -> None:
        self.pauses += 1


def test_many_are_requested_at_a_time_and_answered_in_order() -> None:
    together = threading.Barrier(CONNECTIONS, timeout=20.0)
    threads: set[int] = set()

    def request(connection: SourceConnection, place: int) -> int:
        if threading.get_ident() not in threads:  # the first request of each thread waits for those of all others
            threads.add(threading.get_ident())
            together.wait()
        return place * place

    assert requested(URLS, request, Quick(), STORES) == [place * place for place in range(COUNT)]
    assert len(threads) == CONNECTIONS


def test_an_error_of_one_file_is_its_answer() -> None:
    def request(connection: SourceConnection, place: int) -> int:
        if place == 7:
            raise DataError("no such file")
        return place

    found = requested(URLS[:9], request, Quick(), STORES)
    assert isinstance(found[7], DataError)
    assert [one for one in found if isinstance(one, int)] == [0, 1, 2, 3, 4, 5, 6, 8]
    assert requested([], request, Quick(), STORES) == []


def test_a_failure_that_passes_ends_the_batch_and_no_file_is_left_out() -> None:
    calls: Counter[int] = Counter()
    lock = threading.Lock()

    def request(connection: SourceConnection, place: int) -> int:
        with lock:
            calls[place] += 1
            is_first = calls[place] == 1
        if is_first and place % 40 == 0:
            raise SourceError("reset", "by peer")
        return place

    waiting = Quick()
    assert requested(URLS, request, waiting, STORES) == list(range(COUNT))
    assert max(calls.values()) <= 2
    assert waiting.pauses == 0, "what failed in the batch succeeded when it was requested alone"


def test_a_source_that_is_gone_is_asked_by_one_connection() -> None:
    calls: Counter[int] = Counter()

    def request(connection: SourceConnection, place: int) -> int:
        calls[place] += 1
        raise SourceError("refused", "503")

    waiting = Quick()
    with pytest.raises(SourceGoneError, match="https://data.example/0: cannot be read"):
        requested(URLS, request, waiting, STORES)
    assert len(calls) <= CONNECTIONS and waiting.pauses > 3
    assert [place for place, times in calls.items() if times > 1] == [0]


def test_an_error_that_no_source_explains_is_raised() -> None:
    def request(connection: SourceConnection, place: int) -> int:
        raise KeyError(place)

    with pytest.raises(KeyError):
        requested(URLS, request, Quick(), STORES)
