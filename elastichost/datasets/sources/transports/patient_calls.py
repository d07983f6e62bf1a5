"""Calls of libraries that may block for longer than they are waited for.

Some clients of stores have no limit of time of their own, and no call can be ended from outside. So each call has a
thread; one that is late is left to end by itself, and its result is dropped. The number of such threads is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from elastichost.datasets.sources.transports.addressed_file import SourceError

__all__ = ["PatientCalls"]

MOST_LATE = 4

Found = TypeVar("Found")


class _PatientCall(Generic[Found]):
    def __init__(self, function: Callable[[], Found], ended: Callable[[], None]) -> None:
        self._function, self._ended = function, ended
        self.is_done = threading.Event()
        self.found: list[Found] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.found.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised by `PatientCalls.call`, in the thread that waits
            self.error = error
        finally:
            self._ended()
            self.is_done.set()


class PatientCalls:
    """The calls of one thread. limit_s: how long one is waited for."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._places = threading.Semaphore(1 + MOST_LATE)

    def call(self, function: Callable[[], Found]) -> Found:
        """The result of the function. Raises what it raises, and SourceError when it takes too long."""
        late = SourceError("stalled", f"no answer for {self._limit_s:g} s")
        if not self._places.acquire(timeout=self._limit_s):
            raise late
        call = _PatientCall(function, self._places.release)
        threading.Thread(target=call.run, name="store-call", daemon=True).start()
        if not call.is_done.wait(self._limit_s):
            raise late
        if call.error is not None:
            raise call.error
        return call.found[0]
