"""How a worker waits for a source while it reads with one connection: as it starts, and for test data.

Requests of the work loop run in a thread of their own. The work loop goes on meanwhile: it reads control messages and
sends heartbeats, so that the worker can be stopped, and does not count as hung.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from elastichost.config.sections.input import InputSettings
from elastichost.datasets.sources.patience import SourceHealth, is_given_up
from elastichost.datasets.sources.single_requests import STALL_S, RequestPolicy
from elastichost.wire.control_work import SourceTroubleMsg

__all__ = ["PatientRequests", "ThreadRequests"]

TURN_S = 0.02

Found = TypeVar("Found")


class ThreadRequests(RequestPolicy):
    """Requests of a thread that is not the work loop. send: takes a message to the supervisor."""

    def __init__(self, settings: InputSettings, send: Callable[[SourceTroubleMsg], None]) -> None:
        super().__init__(max(STALL_S, settings.stall_s))  # a footer comes in large pieces, over one connection
        self._patience_s, self._send = settings.patience_s, send
        self._is_gone_told = False

    def call(self, request: Callable[[], Found]) -> Found:
        """See `RequestPolicy.call`."""
        found = request()
        self._is_gone_told = False
        return found

    def tell(self, trouble: SourceTroubleMsg) -> None:
        """See `RequestPolicy.tell`."""
        self._send(trouble)

    def is_over(self, tries: int, health: SourceHealth, gone: SourceTroubleMsg) -> bool:
        """Never: when the patience of the job is over, the supervisor is told that the source is gone, and ends the
        run and this process with it."""
        if is_given_up(health, time.monotonic(), self._patience_s) and not self._is_gone_told:
            self._is_gone_told = True
            self._send(gone)
        return False


class PatientRequests(ThreadRequests):
    """Requests of the work loop. pump: one turn of the control messages; raises StoppedError when the worker is to
    stop. is_failing: a request has failed, and none has succeeded since."""

    def __init__(
        self, settings: InputSettings, send: Callable[[SourceTroubleMsg], None], pump: Callable[[], None]
    ) -> None:
        super().__init__(settings, send)
        self._pump = pump
        self.is_failing = False

    def call(self, request: Callable[[], Found]) -> Found:
        """See `RequestPolicy.call`. Raises StoppedError."""
        answers: queue.SimpleQueue[Found | BaseException] = queue.SimpleQueue()

        def run() -> None:
            try:
                answers.put(request())
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
                answers.put(error)

        threading.Thread(target=run, name="source-request", daemon=True).start()
        while True:
            try:
                found = answers.get(timeout=TURN_S)
            except queue.Empty:
                self._pump()
                continue
            if isinstance(found, BaseException):
                self.is_failing = True
                raise found
            self.is_failing = self._is_gone_told = False
            return found

    def pause(self, seconds: float) -> None:
        """See `RequestPolicy.pause`. Raises StoppedError."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(TURN_S, left_s))
            self._pump()
