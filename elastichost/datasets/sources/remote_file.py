"""A file at a URL as pyarrow reads files: its footer, and the parts of it that were fetched before."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence

from typing_extensions import Buffer

from elastichost.datasets.sources.byte_ranges import ByteRange
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy, tried
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores

__all__ = ["FetchedFile", "RemoteFile", "remote_file"]


def remote_file(url: str, waiting: RequestPolicy = BEFORE_RUN) -> AddressedFile:
    """Size and version of the file. Raises DataError when it is not there, or when the source does not answer."""
    connection = SourceConnection(waiting.stall_s)
    try:
        return tried(url, lambda: connection.stat(url), waiting)
    finally:
        connection.close()


class _File(io.RawIOBase):
    """A file of known size that is read from any place."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes, self._at = size_bytes, 0

    def _part(self, start: int, stop: int) -> bytes:
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        found = self._part(self._at, stop) if stop > self._at else b""
        self._at += len(found)
        return found

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)


class RemoteFile(_File):
    """A file whose parts are requested when they are read: for test data and for checks before a run. stores: those
    that are open already; None: it opens its own."""

    def __init__(
        self, file: AddressedFile, waiting: RequestPolicy = BEFORE_RUN, stores: OpenStores | None = None
    ) -> None:
        super().__init__(file.size_bytes)
        self._file, self._waiting, self._connection = file, waiting, SourceConnection(waiting.stall_s, stores)

    def _part(self, start: int, stop: int) -> bytes:
        data, filled = bytearray(stop - start), 0

        def arrived(size: int) -> None:
            nonlocal filled
            filled += size

        def read() -> None:
            if filled < len(data):  # a try that failed may have brought some
                self._connection.read(self._file, start + filled, memoryview(data)[filled:], arrived)
            self._connection.check(self._file)

        tried(self._file.url, read, self._waiting, lambda: filled)
        return bytes(data)

    def close(self) -> None:
        self._connection.close()
        super().close()


class FetchedFile(_File):
    """A file of which some ranges were fetched. ranges: in order, without overlap. Reading any other byte raises
    ValueError."""

    def __init__(self, size_bytes: int, ranges: Sequence[ByteRange], parts: Sequence[bytearray]) -> None:
        super().__init__(size_bytes)
        self._starts = [start for start, _ in ranges]
        self._parts = parts

    def _part(self, start: int, stop: int) -> bytes:
        place = bisect_right(self._starts, start) - 1
        if place < 0 or stop - self._starts[place] > len(self._parts[place]):
            raise ValueError(f"bytes {start} to {stop} were not fetched")
        offset = self._starts[place]
        return bytes(memoryview(self._parts[place])[start - offset : stop - offset])
