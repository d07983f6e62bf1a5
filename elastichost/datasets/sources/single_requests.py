"""Requests that one thread makes and waits for: footers, lists of files, first lines, test data.

A request that fails in a way that may pass is made again, with the waits of `patience`. Before a run begins that is
tried a few times; a worker waits as long as its job has patience, and tells its supervisor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from elastichost.datasets.sources.patience import SourceHealth, failed, is_given_up, received, wait_s
from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.errors import SourceGoneError
from elastichost.wire.control_work import SourceTrouble, SourceTroubleMsg

__all__ = ["BEFORE_RUN", "STALL_S", "TEXT", "PatientPolicy", "RequestPolicy", "tried"]

STALL_S = 10.0
TRIES = 6  # at least; with the waits between them 3 s
TEXT = 400  # characters of an address or an error that are told

Found = TypeVar("Found")


class RequestPolicy:
    """How requests are made and waited for. stall_s: time without a byte after which one fails. This class is for what
    is read before a run begins; that of a worker overrides all methods."""

    def __init__(self, stall_s: float = STALL_S) -> None:
        self.stall_s = stall_s

    def call(self, request: Callable[[], Found]) -> Found:
        """Makes a request; raises what it raises."""
        return request()

    def pause(self, seconds: float) -> None:
        """Waits before the next request."""
        time.sleep(seconds)

    def tell(self, trouble: SourceTroubleMsg) -> None:
        """Takes note of a trouble of the source, or that it has recovered."""

    def is_over(self, tries: int, health: SourceHealth, gone: SourceTroubleMsg) -> bool:
        """Whether no further request is made, after so many that failed. gone: what is told of a source that is given
        up."""
        return tries >= TRIES


BEFORE_RUN = RequestPolicy()


class PatientPolicy(RequestPolicy):
    """Requests of a verb that reads a whole file: a source is given up when it has given no byte for `patience_s`. say:
    takes what is told of it."""

    def __init__(self, patience_s: float, say: Callable[[SourceTroubleMsg], None]) -> None:
        super().__init__()
        self._patience_s, self._say = patience_s, say

    def tell(self, trouble: SourceTroubleMsg) -> None:
        """See `RequestPolicy.tell`."""
        self._say(trouble)

    def is_over(self, tries: int, health: SourceHealth, gone: SourceTroubleMsg) -> bool:
        """See `RequestPolicy.is_over`."""
        return tries >= TRIES and is_given_up(health, time.monotonic(), self._patience_s)


def tried(
    url: str, request: Callable[[], Found], waiting: RequestPolicy, arrived_bytes: Callable[[], int] = lambda: 0
) -> Found:
    """The result of a request, which may be made several times. arrived_bytes: of all tries, for a request that begins
    again where its last try ended: a source that gives bytes is not given up. Raises SourceGoneError when it is."""
    health, tries, before_bytes = SourceHealth(time.monotonic()), 0, 0
    while True:
        tries += 1
        try:
            found = waiting.call(request)
        except SourceError as error:
            now_s = time.monotonic()
            if (size := arrived_bytes()) > before_bytes:
                health, tries, before_bytes = replace(health, byte_s=now_s), 1, size
            health, is_told = failed(health, now_s)
            if is_told:
                waiting.tell(_message(error.trouble, url, str(error), health.waited_s(now_s), health))
            gone = _message("gone", url, str(error), health.waited_s(now_s), health)
            if waiting.is_over(tries, health, gone):
                raise SourceGoneError(
                    f"{url}: cannot be read ({error})", hint="check the address, and that the source works"
                ) from error
            waiting.pause(wait_s(tries))
        else:
            health, told = received(health, time.monotonic())
            if told is not None:
                waiting.tell(_message("recovered", url, "", told.worst_s, told))
            return found


def _message(trouble: SourceTrouble, url: str, error: str, waited_s: float, health: SourceHealth) -> SourceTroubleMsg:
    return SourceTroubleMsg(trouble, url[:TEXT], error[:TEXT], waited_s, health.failures)
