"""Writes complete records to files of a run, on disks that may be full.

A write to a full disk may write only a part of the given bytes. A partial record is worse than none: a reader cannot
tell the next record from the rest of the partial one. So each function writes the whole record, or cuts the file back
to its earlier length and raises OSError.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from pathlib import Path

from elastichost.human_readable import mib

__all__ = ["append_whole", "cause_words", "is_out_of_space", "space_words", "write_atomically", "write_whole_at"]

# No space, no quota, and the limit on the size of files: each may end while the run waits.
_OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_out_of_space(error: Exception) -> bool:
    """Whether the error is one of missing space, so that the write may succeed after space was freed. Errors of sqlite
    count too; sqlite sometimes reports a full disk as an I/O error."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR"))
    return isinstance(error, OSError) and error.errno in _OUT_OF_SPACE


def cause_words(error: OSError) -> str:
    """The cause of an error, without its number and without the path, which the caller's message has."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def append_whole(descriptor: int, content: bytes) -> None:
    """Appends to a file that was opened with O_APPEND. Raises OSError; the file then has its earlier length."""
    start = os.fstat(descriptor).st_size
    try:
        while content:
            content = content[_some(os.write(descriptor, content)) :]
    except OSError:
        _cut_back(descriptor, start)
        raise


def write_whole_at(descriptor: int, content: bytes, at: int) -> None:
    """Writes at the position `at`. Raises OSError; the file then ends at that position."""
    start = at
    try:
        while content:
            written = _some(os.pwrite(descriptor, content, at))
            content, at = content[written:], at + written
    except OSError:
        _cut_back(descriptor, start)
        raise


def _cut_back(descriptor: int, size_bytes: int) -> None:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):  # a device has no length to restore
        os.ftruncate(descriptor, size_bytes)


def _some(written: int) -> int:
    if not written:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return written


def write_atomically(path: Path, content: bytes, *, has_several_writers: bool = False) -> None:
    """Replaces the file by one with this content, by renaming. has_several_writers: several processes may write it at
    the same time; each gives its new file a name of its own, and one that is killed leaves it behind. Raises OSError;
    the file is then as before, and the incomplete new file is deleted, so that it takes no space."""
    writer = f".{os.getpid()}" if has_several_writers else ""
    making = path.with_name(f".{path.name}{writer}.new")
    try:
        with making.open("wb") as file:
            file.write(content)
        making.replace(path)
    except OSError:
        making.unlink(missing_ok=True)
        raise


def space_words(directory: Path) -> str:
    """The file system of a directory and its free space, as text for a message."""
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return f"{directory} ({error.strerror})"
    free, all_space = (mib(blocks * found.f_frsize) for blocks in (found.f_bavail, found.f_blocks))
    return f"the file system at {_mount_point(directory)} ({free} of {all_space} are free)"


def _mount_point(directory: Path) -> Path:
    found = directory.resolve()
    while not os.path.ismount(found):
        found = found.parent
    return found
