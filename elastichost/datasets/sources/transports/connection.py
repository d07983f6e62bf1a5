"""One connection to the source of a file, by whichever transport its address names."""

from __future__ import annotations

from collections.abc import Callable

from elastichost.datasets.sources.transports.addressed_file import AddressedFile, Transport
from elastichost.datasets.sources.transports.addresses import is_store
from elastichost.datasets.sources.transports.http_range import HttpConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.datasets.sources.transports.store_files import StoreConnection

__all__ = ["SourceConnection"]


class SourceConnection:
    """See `Transport`; used by one thread. stall_s: time without a byte after which a request fails. stores: may be
    shared by threads."""

    def __init__(self, stall_s: float, stores: OpenStores | None = None) -> None:
        self._web = HttpConnection(stall_s)
        self._store = StoreConnection(OpenStores(stall_s) if stores is None else stores)

    def stat(self, url: str) -> AddressedFile:
        """See `Transport.stat`."""
        return self._of(url).stat(url)

    def read(
        self, file: AddressedFile, start: int, into: memoryview, arrived: Callable[[int], None] = lambda size: None
    ) -> float:
        """See `Transport.read`."""
        return self._of(file.url).read(file, start, into, arrived)

    def check(self, file: AddressedFile) -> None:
        """See `Transport.check`."""
        self._of(file.url).check(file)

    def close(self) -> None:
        """Ends the connection. A later request opens another one."""
        self._web.close()
        self._store.close()

    def _of(self, url: str) -> Transport:
        return self._store if is_store(url) else self._web
