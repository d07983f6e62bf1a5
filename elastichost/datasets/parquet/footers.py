"""The footers of Parquet files at addresses: read over many connections at a time, and kept on the disk.

A dataset may have thousands of files, and each process of a run needs the footers of all. So the first process keeps
them, and the others make no request: a worker that replaces a killed one trains after tenths of a second, however far
the files are. A footer is named by address, size and version of its file, and ends with a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import posixpath
import struct
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.datasets.files import FIRST_BYTES, PARQUET_MAGIC, FileStamp, check_pinned, other_than_parquet
from elastichost.datasets.files.many_requests import requested
from elastichost.datasets.sources.bounded_directory import BoundedDirectory
from elastichost.datasets.sources.single_requests import RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError

__all__ = ["Footer", "KeptFooters", "remote_footers"]

TAIL_BYTES = 1 << 16  # of the first request; most footers are shorter
KEPT_BYTES = 1 << 30  # of the footers of all datasets
GROUPS = 64
_LENGTH = struct.Struct("<I")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Footer:
    """stamp: of the file as it is now, or as the run began with it. metadata: what its footer says."""

    stamp: FileStamp
    metadata: pq.FileMetaData


class KeptFooters:
    """Footers on the disk; usable by several threads. Where the disk fails, nothing is kept. path: of the directory,
    which need not exist; None: nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._open: BoundedDirectory | None = None

    def find(self, file: AddressedFile) -> bytes | None:
        """The footer with its length and magic bytes; None: it is not kept, or damaged."""
        group, name = _names_of(file)
        with contextlib.suppress(OSError):
            directory = self._opened(file, group)
            descriptor = directory.find(group, name) if directory is not None else None
            if directory is None or descriptor is None:
                return None
            with open(descriptor, "rb") as kept:
                content = kept.read()
            footer, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
            if checksum == _CHECKSUM.pack(zlib.crc32(footer)):
                return footer
            directory.remove(group, name)
        return None

    def keep(self, file: AddressedFile, footer: bytes) -> None:
        group, name = _names_of(file)
        with contextlib.suppress(OSError):
            directory = self._opened(file, group)
            claim = directory.claim(group, name) if directory is not None else None
            if directory is None or claim is None:  # another process keeps it now
                return
            try:
                directory.make(claim, (footer, _CHECKSUM.pack(zlib.crc32(footer))))
            finally:
                claim.release()

    def close(self) -> None:
        """Lets others remove the footers for lack of room."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open, self._path = None, None

    def _opened(self, file: AddressedFile, group: str) -> BoundedDirectory | None:
        """The directory; None: nothing is kept, as of a file without a version. Raises OSError."""
        with self._lock:
            if self._path is None or not file.version:
                return None
            if self._open is None:
                self._open = BoundedDirectory(self._path, KEPT_BYTES)
            self._open.use(group)
            return self._open


def remote_footers(
    urls: Sequence[str],
    pinned: Sequence[FileStamp],
    kept: KeptFooters,
    waiting: RequestPolicy,
    stores: OpenStores,
) -> list[Footer | DataError]:
    """The footer of each file, or why it cannot be read. pinned: the files of a run that has begun, one for each URL;
    (): none has. The footer of a pinned file is taken without asking if it is kept: each unit that is read later tells
    of which version it is. Raises SourceGoneError when the source is given up."""
    request = partial(_footer, urls=urls, pinned=pinned, kept=kept)
    return requested(urls, request, waiting, stores)


def _footer(
    connection: SourceConnection, place: int, *, urls: Sequence[str], pinned: Sequence[FileStamp], kept: KeptFooters
) -> Footer:
    """Raises DataError, SourceError."""
    expected = pinned[place] if pinned else None
    if expected is not None and expected.has_version:
        file = AddressedFile(expected.path, expected.size_bytes, expected.modified_ns)
        if (footer := kept.find(file)) is not None:
            return Footer(expected, _parsed(file.url, footer))
    file = connection.stat(urls[place])
    stamp = FileStamp(file.url, file.size_bytes, file.version)
    if expected is not None:
        check_pinned(stamp, expected)
    if file.size_bytes == 0:
        raise DataError(f"{file.url}: is empty (0 bytes)")
    footer = kept.find(file)
    if footer is None:
        footer = _fetched(connection, file)
        metadata = _parsed(file.url, footer)
        kept.keep(file, footer)
        return Footer(stamp, metadata)
    return Footer(stamp, _parsed(file.url, footer))


def _fetched(connection: SourceConnection, file: AddressedFile) -> bytes:
    """The last bytes of the file: its footer, the length of the footer, the magic bytes. Raises DataError for a file of
    another format, SourceError."""
    tail = _part(connection, file, max(0, file.size_bytes - TAIL_BYTES), file.size_bytes)
    end_bytes = _LENGTH.size + len(PARQUET_MAGIC)
    if not tail.endswith(PARQUET_MAGIC):
        begin = _part(connection, file, 0, min(FIRST_BYTES, file.size_bytes))
        connection.check(file)
        if (other := other_than_parquet(file.url, begin)) is not None:
            raise DataError(f"{file.url}: {other}")
    elif len(tail) >= end_bytes:
        length = _LENGTH.unpack_from(tail, len(tail) - end_bytes)[0] + end_bytes
        if len(tail) < length <= file.size_bytes:
            tail = _part(connection, file, file.size_bytes - length, file.size_bytes - len(tail)) + tail
        tail = tail[-length:]
    connection.check(file)
    return tail


def _part(connection: SourceConnection, file: AddressedFile, start: int, stop: int) -> bytes:
    data = bytearray(stop - start)
    connection.read(file, start, memoryview(data))
    return bytes(data)


def _parsed(url: str, footer: bytes) -> pq.FileMetaData:
    try:
        return pq.read_metadata(io.BytesIO(PARQUET_MAGIC + footer))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{url}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def _names_of(file: AddressedFile) -> tuple[str, str]:
    """(group, name). The files of a folder are in one group, and there are at most GROUPS: a look for room is short."""
    folder = posixpath.dirname(file.url.partition("?")[0])
    group = f"{zlib.crc32(os.fsencode(folder)) % GROUPS:02}"
    identity = os.fsencode(f"{file.url}\0{file.size_bytes}\0{file.version}")
    return group, hashlib.sha256(identity).hexdigest()[:32]
