"""Requests ranges of remote files over several connections at the same time, and waits for a source with a trouble.

Each connection is a thread. As many of them work as `InputKnobs.connections` says; each takes the oldest request. The
bytes go to their place in the result, so the order in which requests are answered does not matter. A request that fails
is sent again from the byte at which it ended (`patience`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elastichost.datasets.sources.byte_ranges import ByteRange, requests_of
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.patience import SourceHealth, failed, is_given_up, received, wait_s
from elastichost.datasets.sources.range_cache import RangeCache
from elastichost.datasets.sources.single_requests import TEXT
from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError
from elastichost.datasets.sources.transports.addresses import is_store
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError
from elastichost.wire.control_work import SourceTrouble, SourceTroubleMsg

__all__ = ["SourceConnections"]


@dataclass(slots=True)
class _Awaited:
    """What one caller waits for. left: number of requests that are not answered. needs_check: after the last of them
    the source is asked whether the file is still the same; a web server says so with each answer."""

    left: int
    needs_check: bool
    error: Exception | None = None


@dataclass(slots=True)
class _Request:
    """range_bytes: the size of ranges that it was made with; 0: it asks for no bytes."""

    file: AddressedFile
    start: int
    into: memoryview  # empty: asks only whether the file is still the same
    fetch: _Awaited
    range_bytes: int = 0
    filled: int = 0
    tries: int = 0  # in a row without a byte
    first_byte_s: float = 0.0


@dataclass(slots=True)
class _Sums:
    began_s: float = field(default_factory=time.perf_counter)
    began_cpu_s: float = field(default_factory=time.thread_time)


class SourceConnections:
    """The connections of one worker. stall_s: time without a byte after which a request is sent again. patience_s: time
    without a byte after which it is told that the source is gone. cache_path, cache_bytes: directory and bound of the
    ranges on the disk, while `InputKnobs.cache` is "disk"; None: never, 0: by the free space."""

    def __init__(
        self,
        control: InputControl,
        stall_s: float,
        patience_s: float,
        cache_path: Path | None = None,
        cache_bytes: int = 0,
    ) -> None:
        self._control, self._stall_s, self._patience_s = control, stall_s, patience_s
        self._changed = threading.Condition()
        self._requests: deque[_Request] = deque()
        self._threads: list[threading.Thread] = []
        self._health = SourceHealth(time.monotonic())
        self._is_gone = self._is_closed = False
        self._stores = OpenStores(stall_s)
        self.cache = None if cache_path is None else RangeCache(cache_path, cache_bytes, patience_s, self._may_not_wait)
        control.when_tuned(self._wake)

    def fetch(self, file: AddressedFile, ranges: Sequence[ByteRange]) -> tuple[bytearray, ...]:
        """The bytes of each range, from the disk if they are kept there, or else from the source (`_fetch`)."""
        if self.cache is None or self._control.knobs.cache != "disk":
            return self._fetch(file, ranges)
        return self.cache.fetch(file, ranges, self._fetch)

    def _may_not_wait(self, waited_s: float) -> bool:
        self._control.decode.wait_here(source_s=waited_s)
        return self._is_closed

    def _fetch(self, file: AddressedFile, ranges: Sequence[ByteRange]) -> tuple[bytearray, ...]:
        """The bytes of each range from the source. Blocks until all have arrived, however long the source takes.
        Raises DataError when the file has changed or is not there, or when the connections are closed."""
        found = tuple(bytearray(stop - start) for start, stop in ranges)
        fetch = _Awaited(0, needs_check=is_store(file.url))
        with self._changed:
            if not self._requests and not self._health.is_failing:
                self._health = SourceHealth(time.monotonic(), told_s=self._health.told_s)  # nothing was requested
            size = self._control.knobs.range_bytes
            for (start, stop), data in zip(ranges, found, strict=True):
                view = memoryview(data)
                for begin, end in requests_of([(start, stop)], size):
                    self._requests.append(_Request(file, begin, view[begin - start : end - start], fetch, size))
                    fetch.left += 1
            self._start_threads()
            self._changed.notify_all()
            began_s = time.perf_counter()
            self._changed.wait_for(lambda: fetch.left == 0 or fetch.error is not None or self._is_closed)
            self._control.decode.wait_here(source_s=time.perf_counter() - began_s)
        if fetch.error is not None:
            raise fetch.error
        if fetch.left:
            raise DataError(f"{file.url}: not read, because the worker ends")
        return found

    def close(self) -> None:
        """Ends the threads; one that waits for bytes ends within `stall_s`."""
        with self._changed:
            self._is_closed = True
            self._requests.clear()
            self._changed.notify_all()
        if self.cache is not None:
            self.cache.close()

    def _wake(self) -> None:
        with self._changed:
            self._start_threads()
            self._changed.notify_all()

    # --- the threads ----------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        while self._requests and len(self._threads) < self._control.knobs.connections:
            number = len(self._threads)
            thread = threading.Thread(target=self._run, args=(number,), name=f"source-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, number: int) -> None:
        connection = SourceConnection(self._stall_s, self._stores)
        while (request := self._next(number)) is not None:
            sums, before = _Sums(), request.filled
            trouble: SourceError | None = None
            try:
                self._read(connection, request)
            except SourceError as error:
                trouble = error
            except Exception as error:  # noqa: BLE001 - raised by `fetch`, in the thread that waits for the bytes
                self._give_up(request, error)
            self._measure(request, sums, request.filled - before)
            if trouble is not None:
                self._failed(request, trouble)
            else:
                self._answered(request)
        connection.close()

    def _next(self, number: int) -> _Request | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._requests and number < self._control.knobs.connections)
            )
            return None if self._is_closed else self._requests.popleft()

    def _read(self, connection: SourceConnection, request: _Request) -> None:
        def arrived(size: int) -> None:
            request.filled += size
            request.tries = 0
            with self._changed:
                self._health, told = received(self._health, time.monotonic())
                self._is_gone = False
            if told is not None:
                self._tell("recovered", request.file.url, "", told.worst_s, told.failures)

        if not request.into:
            connection.check(request.file)
            arrived(0)
            return
        request.first_byte_s = connection.read(
            request.file, request.start + request.filled, request.into[request.filled :], arrived
        )

    def _measure(self, request: _Request, sums: _Sums, size_bytes: int) -> None:
        cpu_s = time.thread_time() - sums.began_cpu_s
        wall_s = time.perf_counter() - sums.began_s
        is_of_now = request.range_bytes == self._control.knobs.range_bytes  # other sizes take other times
        self._control.source.add(
            cpu_s=cpu_s,
            source_s=max(0.0, wall_s - cpu_s),
            first_byte_s=request.first_byte_s,
            size_bytes=size_bytes,
            items=1 if request.into else 0,
            time_s=wall_s if is_of_now else None,
        )

    def _answered(self, request: _Request) -> None:
        with self._changed:
            fetch = request.fetch
            fetch.left -= 1
            if not fetch.left and fetch.needs_check:
                fetch.left, fetch.needs_check = 1, False
                self._requests.appendleft(_Request(request.file, 0, memoryview(b""), fetch))
            self._changed.notify_all()

    def _give_up(self, request: _Request, error: Exception) -> None:
        with self._changed:
            request.fetch.error = request.fetch.error or error
            self._requests = deque(one for one in self._requests if one.fetch is not request.fetch)
            self._changed.notify_all()

    def _failed(self, request: _Request, error: SourceError) -> None:
        now_s = time.monotonic()
        with self._changed:
            self._health, is_told = failed(self._health, now_s)
            health = self._health
        if is_told:
            waited_s = health.waited_s(now_s)
            self._tell(error.trouble, request.file.url, str(error), waited_s, health.failures)
        if is_given_up(health, now_s, self._patience_s) and not self._is_gone:
            self._is_gone = True  # the supervisor ends the run, and this worker with it; until then it tries on
            self._tell("gone", request.file.url, str(error), health.waited_s(now_s), health.failures)
        request.tries += 1
        with self._changed:
            if request.fetch.error is None and not self._is_closed:
                self._requests.appendleft(request)
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed, wait_s(request.tries))

    def _tell(self, trouble: SourceTrouble, url: str, error: str, waited_s: float, requests: int) -> None:
        self._control.tell(SourceTroubleMsg(trouble, url[:TEXT], error[:TEXT], waited_s, requests))
