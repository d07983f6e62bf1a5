"""Finds the stamp of a file, opens the file, and detects changes of it."""

from __future__ import annotations

import io
import os

from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.sources.remote_file import RemoteFile, remote_file
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.addresses import is_address
from elastichost.errors import DataError

__all__ = ["check_unchanged", "is_url", "opened", "stamp"]


def stamp(path: str, waiting: RequestPolicy = BEFORE_RUN) -> FileStamp:
    """The stamp of a file as it is now. For a URL the time is any number that changes with the file. Raises DataError
    when it does not exist or is not a regular file."""
    if is_url(path):
        remote = remote_file(path, waiting)
        return FileStamp(path=path, size_bytes=remote.size_bytes, modified_ns=remote.version)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise DataError(f"{path!r}: its name is not UTF-8", hint="rename the file") from None
    try:
        status = os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}", hint="check data.train and data.test in the job file") from error
    if not os.path.isfile(path):
        raise DataError(f"{path}: not a plain file", hint="name files, for example with *.parquet")
    return FileStamp(path=path, size_bytes=status.st_size, modified_ns=status.st_mtime_ns)


def opened(file: FileStamp, waiting: RequestPolicy = BEFORE_RUN) -> io.RawIOBase:
    """The file for reading from any place; each part of a URL's is requested when it is read. Raises OSError, and for a
    URL DataError."""
    if is_url(file.path):
        return RemoteFile(AddressedFile(file.path, file.size_bytes, file.modified_ns), waiting)
    return open(file.path, "rb", buffering=0)


def check_unchanged(expected: FileStamp) -> None:
    """Raises DataError when the file differs from its earlier stamp. That of a URL is checked with each request."""
    if is_url(expected.path):
        return
    now = stamp(expected.path)
    if now != expected:
        raise DataError(
            f"{expected.path}: changed while it was being read "
            f"({expected.size_bytes} bytes when the job started, {now.size_bytes} bytes now)",
            hint="do not change data files while a job runs: write new data to new files and start again",
        )


def is_url(path: str) -> bool:
    """Whether the path is an address, of a web server or a store, whose file can be read without a copy here."""
    return is_address(path)
