"""A file at an address: its identity, the transports that read it, and the errors of a request."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elastichost.errors import DataError
from elastichost.wire.control_work import SourceTrouble

__all__ = ["AddressedFile", "SourceError", "Transport", "changed", "version_of_tag"]


class SourceError(Exception):
    """A request has failed in a way that may pass. trouble: in what way."""

    def __init__(self, trouble: SourceTrouble, message: str) -> None:
        super().__init__(message)
        self.trouble: SourceTrouble = trouble


@dataclass(frozen=True, slots=True)
class AddressedFile:
    """A file at a URL. version: a number that differs when the source says that the file was changed; 0: it does not
    say."""

    url: str
    size_bytes: int
    version: int


class Transport(Protocol):
    """One connection to a source; used by one thread."""

    def stat(self, url: str) -> AddressedFile:
        """Size and version of the file. Raises DataError for a file that is not there or may not be read, SourceError
        for what may pass."""
        ...

    def read(
        self, file: AddressedFile, start: int, into: memoryview, arrived: Callable[[int], None] = lambda size: None
    ) -> float:
        """Reads len(into) bytes from `start` on. arrived: is called with the bytes of each piece. Returns the seconds
        until the first byte. Raises as `stat`, and DataError for a file that has changed."""
        ...

    def check(self, file: AddressedFile) -> None:
        """Returns when all bytes that `read` has given are of this version of the file. Raises as `read`."""
        ...

    def close(self) -> None: ...


def version_of_tag(tag: str) -> int:
    """The version of a file with this entity tag; not 0."""
    return zlib.crc32(tag.encode()) + 1


def changed(file: AddressedFile, size_bytes: int) -> DataError:
    """The error for a file that is another one now."""
    return DataError(
        f"{file.url}: changed while it was being read ({file.size_bytes} bytes when the job started, "
        f"{size_bytes} bytes now)",
        hint="do not change data files while a job runs: write new data to new files and start again",
    )
