"""Files of stores as a transport.

A store gives a range without saying of which version of the file it is. So `check` asks for the version after the last
range of a unit: if it is the one of the begin, all bytes that came between are of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError, changed
from elastichost.datasets.sources.transports.addresses import StoreAddress, parsed
from elastichost.datasets.sources.transports.open_stores import OpenStore, OpenStores
from elastichost.datasets.sources.transports.patient_calls import PatientCalls
from elastichost.datasets.sources.transports.store_errors import missing, typed
from elastichost.errors import DataError

__all__ = ["StoreConnection"]

LIMIT_STALLS = 6.0  # a call that tells no progress is waited for this many times `stall_s`: a whole range must arrive

Found = TypeVar("Found")


class StoreConnection:
    """Requests to stores, one at a time; used by one thread. stores: may be shared by threads."""

    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores
        self._calls = PatientCalls(LIMIT_STALLS * stores.stall_s)
        self._first_byte_s = 0.0  # of the newest request that had no content

    def stat(self, url: str) -> AddressedFile:
        """See `Transport.stat`."""
        store, address = self._of(url)
        began_s = time.perf_counter()
        try:
            size, version = self._call(store, url, lambda: store.stat(address.key))
        except FileNotFoundError as error:
            has_place = self._call(store, url, store.has_root)
            raise missing(url, address.authority, has_place=has_place) from error
        self._first_byte_s = time.perf_counter() - began_s
        return AddressedFile(url, size, version)

    def read(
        self, file: AddressedFile, start: int, into: memoryview, arrived: Callable[[int], None] = lambda size: None
    ) -> float:
        """See `Transport.read`. The bytes arrive as one piece. The seconds until the first byte are those of the
        newest `stat`: libraries do not tell them."""
        store, address = self._of(file.url)
        stop = start + len(into)
        began_s = time.perf_counter()
        try:
            found = self._call(store, file.url, lambda: store.read(address.key, start, stop))
        except FileNotFoundError as error:
            raise missing(file.url, address.authority, has_place=True) from error
        except SourceError as error:
            if error.trouble != "stalled":  # a range behind the end of a file that is shorter now fails too
                self.check(file)
            raise
        if len(found) != len(into):
            self.check(file)
            raise SourceError("reset", f"{len(found)} bytes came instead of {len(into)}")
        into[:] = found
        arrived(len(found))
        return min(self._first_byte_s, time.perf_counter() - began_s)

    def check(self, file: AddressedFile) -> None:
        """See `Transport.check`."""
        now = self.stat(file.url)
        if now != file:
            raise changed(file, now.size_bytes)

    def close(self) -> None:
        """Does nothing: connections belong to the store."""

    def _of(self, url: str) -> tuple[OpenStore, StoreAddress]:
        address = parsed(url)
        return self._stores.of(address), address

    def _call(self, store: OpenStore, url: str, request: Callable[[], Found]) -> Found:
        """The result of a request. Raises FileNotFoundError, DataError and SourceError."""
        try:
            return request() if store.ends_by_itself else self._calls.call(request)
        except (FileNotFoundError, DataError, SourceError):
            raise
        except Exception as error:
            raise typed(url, error) from error
