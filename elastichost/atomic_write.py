"""Writing whole records to files of a run, on disks that may be full.

A write to a full disk may take a part of what it was given. A part of a record is worse than none: what is written
after it can not be told from its rest. So a record is there as a whole, or the file is cut back to where it was.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from pathlib import Path

__all__ = ["append_whole", "is_out_of_space", "space_words", "write_atomically", "write_whole_at"]

# no space, no quota left, and a limit on the size of files: all of them may go away while the run waits
_OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_out_of_space(error: Exception) -> bool:
    """Whether the write may succeed later, when somebody has freed space. Of sqlite as well, which tells a full disk as
    an error of input and output now and then."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR"))
    return isinstance(error, OSError) and error.errno in _OUT_OF_SPACE


def append_whole(descriptor: int, content: bytes) -> None:
    """Appends to a file that was opened with O_APPEND. Raises OSError; then the file is as long as before."""
    start = os.fstat(descriptor).st_size
    try:
        while content:
            content = content[_some(os.write(descriptor, content)) :]
    except OSError:
        _cut_back(descriptor, start)
        raise


def write_whole_at(descriptor: int, content: bytes, at: int) -> None:
    """Writes at a position. Raises OSError; then the file ends at that position."""
    start = at
    try:
        while content:
            written = _some(os.pwrite(descriptor, content, at))
            content, at = content[written:], at + written
    except OSError:
        _cut_back(descriptor, start)
        raise


def _cut_back(descriptor: int, size_bytes: int) -> None:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):  # a device takes all or nothing, and has no length
        os.ftruncate(descriptor, size_bytes)


def _some(written: int) -> int:
    if not written:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return written


def write_atomically(path: Path, content: bytes) -> None:
    """The file is there with this content as a whole, or as it was before. Raises OSError; then nothing is left of the
    new one, so that it takes no space."""
    making = path.with_name(f".{path.name}.new")
    try:
        with making.open("wb") as file:
            file.write(content)
        making.replace(path)
    except OSError:
        making.unlink(missing_ok=True)
        raise


def space_words(directory: Path) -> str:
    """The file system of a directory, and what is left of it, for a message."""
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return f"{directory} ({error.strerror})"
    free_mb, all_mb = found.f_bavail * found.f_frsize / 1e6, found.f_blocks * found.f_frsize / 1e6
    return f"the file system at {_mount_point(directory)} ({free_mb:,.1f} of {all_mb:,.0f} MB are free)"


def _mount_point(directory: Path) -> Path:
    found = directory.resolve()
    while not os.path.ismount(found):
        found = found.parent
    return found
