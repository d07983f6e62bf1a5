"""Ranges of remote files on the disk: what was fetched once is read from there, by all workers of all jobs.

A range is kept as it was fetched: the columns of a row group that lie side by side. The group of a file is named by its
address, length and version (entity tag or time of the last change), so a file that was changed has none of the old
ranges. A file without a version is not kept. Each range ends with its checksum, and a damaged one is fetched again.

Of processes that want a range at the same time one fetches it and the others wait. Nobody waits while it has a range of
its own to fetch, so none waits for another in a circle, and no longer than `wait_s`: then it fetches the range too."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elastichost.datasets.sources.bounded_directory import BoundedDirectory, Claim
from elastichost.datasets.sources.byte_ranges import ByteRange
from elastichost.datasets.sources.transports.addressed_file import AddressedFile

__all__ = ["CacheCounts", "RangeCache"]

LOOK_S = 0.02  # between two looks at a range that another process fetches
_TRAILER = struct.Struct("<II")  # the low 32 bits of the length, and the CRC-32 of the bytes

Fetch = Callable[[AddressedFile, Sequence[ByteRange]], tuple[bytearray, ...]]


@dataclass(slots=True)
class CacheCounts:
    """Ranges: read from the disk, fetched and kept, fetched and not kept for lack of room, fetched by another process
    while this one waited, and damaged."""

    read: int = 0
    kept: int = 0
    not_kept: int = 0
    awaited: int = 0
    damaged: int = 0


class RangeCache:
    """The ranges that the threads of one process fetch. Raises nothing of its own: where the disk fails, ranges are
    fetched. path: of the directory, which need not exist. limit_bytes: of all ranges of all jobs; 0: a quarter of what
    they and the free space of the disk are together. may_not_wait: is told each stretch that was waited for another
    process, and says whether this one ends."""

    def __init__(
        self,
        path: Path,
        limit_bytes: int,
        wait_s: float,
        may_not_wait: Callable[[float], bool] = lambda waited_s: False,
    ) -> None:
        self._path, self._limit_bytes, self._wait_s, self._may_not_wait = path, limit_bytes, wait_s, may_not_wait
        self._lock = threading.Lock()
        self._open: BoundedDirectory | None = None
        self._is_broken = False
        self.counts = CacheCounts()

    def fetch(self, file: AddressedFile, ranges: Sequence[ByteRange], fetch: Fetch) -> tuple[bytearray, ...]:
        """The bytes of each range: from the disk, or by `fetch`, which is asked for all that are absent together."""
        group = _group_of(file)
        directory = self._opened(group) if file.version else None
        if directory is None:
            return fetch(file, ranges)
        found: dict[ByteRange, bytearray] = {}
        claims: dict[ByteRange, Claim | None] = {}
        try:
            for one in ranges:
                self._find_or_claim(directory, group, one, found, claims)
            self._fetch_claimed(directory, file, claims, found, fetch)
            for one in ranges:
                if one not in found:
                    found[one] = self._await(directory, file, group, one, fetch)
        finally:
            _release(claims)
        return tuple(found[one] for one in ranges)

    def close(self) -> None:
        """Lets other jobs remove the files."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._is_broken = True

    def _opened(self, group: str) -> BoundedDirectory | None:
        """The directory, which keeps the group from now on; None: it cannot be used."""
        with self._lock:
            if self._is_broken:
                return None
            try:
                if self._open is None:
                    self._open = BoundedDirectory(self._path, self._limit_bytes or None)
                self._open.use(group)
            except OSError:
                self._is_broken = True
                return None
            return self._open

    def _find_or_claim(
        self,
        directory: BoundedDirectory,
        group: str,
        one: ByteRange,
        found: dict[ByteRange, bytearray],
        claims: dict[ByteRange, Claim | None],
    ) -> None:
        """Adds a range to `found`, or to `claims` if this process fetches it. claims: None where the disk fails, and
        nothing can be kept. A range in neither is fetched by another process now."""
        if (data := self._load(directory, group, one)) is not None:
            found[one] = data
            return
        try:
            claim = directory.claim(group, _name_of(one))
        except OSError:
            claims[one] = None
            return
        if claim is None:
            return
        if (data := self._load(directory, group, one)) is not None:  # completed just before it was claimed
            found[one] = data
            claim.release()
        else:
            claims[one] = claim

    def _fetch_claimed(
        self,
        directory: BoundedDirectory,
        file: AddressedFile,
        claims: dict[ByteRange, Claim | None],
        found: dict[ByteRange, bytearray],
        fetch: Fetch,
    ) -> None:
        if not claims:
            return
        wanted = tuple(claims)
        for one, data in zip(wanted, fetch(file, wanted), strict=True):
            found[one] = data
            if (claim := claims.pop(one)) is not None:
                self._keep(directory, claim, data)
            else:
                self._count("not_kept")

    def _keep(self, directory: BoundedDirectory, claim: Claim, data: bytearray) -> None:
        is_kept = False
        try:
            with contextlib.suppress(OSError):
                is_kept = directory.make(claim, (data, _trailer_of(data)))
        finally:
            claim.release()
        self._count("kept" if is_kept else "not_kept")

    def _await(
        self, directory: BoundedDirectory, file: AddressedFile, group: str, one: ByteRange, fetch: Fetch
    ) -> bytearray:
        """A range that another process fetches; by `fetch` if that process ends, or takes too long."""
        until_s, looked_s = time.monotonic() + self._wait_s, time.monotonic()
        while (now_s := time.monotonic()) < until_s and not self._may_not_wait(now_s - looked_s):
            looked_s = now_s
            found: dict[ByteRange, bytearray] = {}
            claims: dict[ByteRange, Claim | None] = {}
            self._find_or_claim(directory, group, one, found, claims)
            try:
                if claims:
                    self._fetch_claimed(directory, file, claims, found, fetch)
                    return found[one]
            finally:
                _release(claims)
            if one in found:
                self._count("awaited")
                return found[one]
            time.sleep(LOOK_S)
        return fetch(file, (one,))[0]

    def _load(self, directory: BoundedDirectory, group: str, one: ByteRange) -> bytearray | None:
        size = one[1] - one[0]
        try:
            descriptor = directory.find(group, _name_of(one))
            if descriptor is None:
                return None
            try:
                data, trailer = _read(descriptor, size, 0), _read(descriptor, _TRAILER.size, size)
            finally:
                os.close(descriptor)
        except OSError:
            return None
        if bytes(trailer) != _trailer_of(data) or len(data) != size:
            self._count("damaged")
            with contextlib.suppress(OSError):
                directory.remove(group, _name_of(one))
            return None
        self._count("read")
        return data

    def _count(self, what: Literal["read", "kept", "not_kept", "awaited", "damaged"]) -> None:
        with self._lock:
            setattr(self.counts, what, getattr(self.counts, what) + 1)


def _release(claims: Mapping[ByteRange, Claim | None]) -> None:
    for claim in claims.values():
        if claim is not None:
            claim.release()


def _group_of(file: AddressedFile) -> str:
    return hashlib.sha256(f"{file.url}\0{file.size_bytes}\0{file.version}".encode()).hexdigest()[:32]


def _name_of(one: ByteRange) -> str:
    return f"{one[0]}-{one[1]}"


def _trailer_of(data: bytearray) -> bytes:
    return _TRAILER.pack(len(data) & 0xFFFFFFFF, zlib.crc32(data))


def _read(descriptor: int, size: int, at: int) -> bytearray:
    """The bytes, fewer at the end of the file."""
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size and (read := os.preadv(descriptor, [view[filled:]], at + filled)):
        filled += read
    return data if filled == size else data[:filled]
