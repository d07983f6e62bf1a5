"""A plain copy of compressed text at an address: made once, in pieces as they arrive, and shared by all jobs.

A gzip stream cannot be read from the middle, and units are read from the middle. The copy appears when it is complete,
so a process that is killed meanwhile leaves nothing that could be read.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from elastichost.datasets.files import FileStamp, cache_directory, opened, stamp
from elastichost.datasets.sources.bounded_directory import BoundedDirectory, Claim
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.errors import DataError
from elastichost.human_readable import mib

__all__ = ["PlainCopies"]

PIECE_BYTES = 1 << 20  # of a request
MOST_INFLATED_BYTES = 16 << 20  # that are held at one time
LOOK_S = 0.1  # between two looks at a copy that another process makes
NAME = "plain"
GZIP_BITS = 31  # of zlib: a gzip header, the largest window


class PlainCopies:
    """The plain copies that one decoder reads. While this object lives, no other process removes them for lack of room.
    One descriptor keeps all of them, however many there are."""

    def __init__(self, environ: Mapping[str, str], waiting: RequestPolicy = BEFORE_RUN) -> None:
        self._path, self._waiting = cache_directory(environ) / "text", waiting
        self._open: BoundedDirectory | None = None

    def copy_of(self, file: FileStamp) -> FileStamp:
        """The stamp of the plain copy of a compressed file, which is made where it is absent. Raises DataError when the
        file is damaged, or when there is no room for the copy."""
        # of a file that does not say when it was changed, a copy of an earlier process may be of other content
        version = str(file.modified_ns) if file.has_version else f"of process {os.getpid()} at {time.time_ns()}"
        group = hashlib.sha256(f"{file.path}\0{file.size_bytes}\0{version}".encode()).hexdigest()[:32]
        copy = self._path / group / NAME
        try:
            directory = self._opened()
            directory.use(group)
            while not copy.exists():
                claim = directory.claim(group, NAME)
                if claim is None:  # another process makes it
                    self._waiting.pause(LOOK_S)
                    continue
                try:
                    if not copy.exists():
                        _make(directory, claim, file, self._waiting)
                finally:
                    claim.release()
        except OSError as error:
            raise _no_room(file, self._path, error.strerror or str(error)) from error
        return stamp(str(copy))

    def _opened(self) -> BoundedDirectory:
        if self._open is None:
            self._open = BoundedDirectory(self._path, None)
            # Nothing ends a decoder (see `Decoder`): its descriptor is closed when it is gone, and this object with it.
            weakref.finalize(self, self._open.close)
        return self._open


def _make(directory: BoundedDirectory, claim: Claim, file: FileStamp, waiting: RequestPolicy) -> None:
    try:
        for piece in _inflated(file, waiting):
            if not directory.append(claim, (piece,)):
                bound = f"more than {mib(directory.limit_bytes)}, a quarter of the free disk, or the disk is full"
                raise _no_room(file, directory.path, bound)
    except DataError:
        directory.drop(claim)
        raise
    if not directory.complete(claim):
        raise _no_room(file, directory.path, "the disk fails")


def _no_room(file: FileStamp, path: Path, why: str) -> DataError:
    return DataError(
        f"{file.path}: no room for its plain text in {path}: {why}",
        hint="set ELASTICHOST_CACHE to a folder with more room, or convert the file to Parquet",
    )


def _inflated(file: FileStamp, waiting: RequestPolicy) -> Iterator[bytes]:
    """The plain text, in pieces. A file may consist of several gzip members."""
    with opened(file, waiting) as source:
        member, rest, at = zlib.decompressobj(GZIP_BITS), b"", 0
        while piece := rest or source.read(PIECE_BYTES):
            at += 0 if rest else len(piece)
            if member.eof:
                member = zlib.decompressobj(GZIP_BITS)
            try:
                found = member.decompress(piece, MOST_INFLATED_BYTES)
            except zlib.error as error:
                why = f"is damaged before byte {at:,} ({error})"
                raise DataError(f"{file.path}: {why}", hint="copy it again") from error
            rest = member.unused_data if member.eof else member.unconsumed_tail
            yield found
        if not member.eof:
            yield member.flush()  # what did not fit into the last piece
        if not member.eof:
            raise DataError(f"{file.path}: ends within its gzip stream, at byte {at:,}", hint="copy it again")
