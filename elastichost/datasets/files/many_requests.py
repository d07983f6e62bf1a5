"""The same request to many files, over several connections at a time: a dataset may have thousands of files.

All are requested at once first. When a request fails in a way that may pass, no further one is begun: the source may be
gone. One file that is left is then requested alone, with the patience of the job, and after it all others at once
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from elastichost.datasets.sources.single_requests import RequestPolicy, tried
from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError, SourceGoneError

__all__ = ["CONNECTIONS", "requested"]

CONNECTIONS = 32  # at a time

Found = TypeVar("Found")


def requested(
    urls: Sequence[str],
    request: Callable[[SourceConnection, int], Found],
    waiting: RequestPolicy,
    stores: OpenStores,
) -> list[Found | DataError]:
    """What `request` found for each URL, or the DataError that it raised. request: is called with a connection and the
    place of the URL, by several threads. Raises SourceGoneError when the source is given up."""
    answers: list[Found | DataError | None] = [None] * len(urls)
    while left := [place for place, answer in enumerate(answers) if answer is None]:
        batch = _Batch(left, request, lambda: SourceConnection(waiting.stall_s, stores))
        try:
            waiting.call(batch.run)
        finally:
            batch.stop()
        for place, answer in batch.answers.items():
            answers[place] = answer
        first = next((place for place in left if answers[place] is None), None)
        if first is not None:
            answers[first] = _alone(urls[first], first, request, waiting, stores)
    return [answer for answer in answers if answer is not None]


def _alone(
    url: str,
    place: int,
    request: Callable[[SourceConnection, int], Found],
    waiting: RequestPolicy,
    stores: OpenStores,
) -> Found | DataError:
    connection = SourceConnection(waiting.stall_s, stores)
    try:
        return tried(url, lambda: request(connection, place), waiting)
    except SourceGoneError:
        raise
    except DataError as error:
        return error
    finally:
        connection.close()


class _Batch(Generic[Found]):
    """Requests by several threads, until one fails in a way that may pass. answers: by place."""

    def __init__(
        self,
        places: Iterable[int],
        request: Callable[[SourceConnection, int], Found],
        connect: Callable[[], SourceConnection],
    ) -> None:
        self._places, self._request, self._connect = list(places), request, connect
        self._lock = threading.Lock()
        self._next = 0
        self._is_over = False
        self._failure: BaseException | None = None
        self.answers: dict[int, Found | DataError] = {}

    def run(self) -> None:
        """Returns when all threads have ended. Raises what a request raised that no source explains."""
        count = min(CONNECTIONS, len(self._places))
        threads = [threading.Thread(target=self._work, name="source-request", daemon=True) for _ in range(count)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Lets the threads begin no further request."""
        self._is_over = True

    def _work(self) -> None:
        connection = self._connect()
        try:
            while (place := self._take()) is not None:
                self.answers[place] = self._answer(connection, place)
        except SourceError:
            self.stop()
        except BaseException as error:  # noqa: BLE001 - raised by `run`, in the thread that waits
            self._failure = error
            self.stop()
        finally:
            connection.close()

    def _answer(self, connection: SourceConnection, place: int) -> Found | DataError:
        try:
            return self._request(connection, place)
        except DataError as error:
            return error

    def _take(self) -> int | None:
        with self._lock:
            if self._is_over or self._next == len(self._places):
                return None
            self._next += 1
            return self._places[self._next - 1]
