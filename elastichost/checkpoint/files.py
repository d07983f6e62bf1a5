"""File operations for checkpoints: exclusive creation, no symbolic links, fsync, private modes."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

from elastichost.atomic_write import is_out_of_space
from elastichost.errors import CheckpointError, CheckpointSpaceError

__all__ = [
    "USE_ANOTHER",
    "check_block_file_name",
    "create_exclusively",
    "disk_error",
    "open_for_reading",
    "read_file",
    "remove_tree",
    "sync_directory",
    "write_file",
]

USE_ANOTHER = "use the previous checkpoint"
_BLOCK_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.bin")


def check_block_file_name(name: str, directory: Path) -> None:
    """Checks a file name from a manifest: it must not lead out of the checkpoint's directory. Raises
    CheckpointError."""
    if not _BLOCK_FILE_NAME.fullmatch(name):
        raise CheckpointError(f"{directory}: {name!r} is not a valid name of a block file")


def disk_error(what: str, path: Path, error: OSError) -> CheckpointError:
    """Converts an OSError to a CheckpointError that names the file."""
    hints = {
        errno.ENOSPC: "free some disk space, or set checkpoint.directory to another disk",
        errno.EDQUOT: "the disk quota is used up; set checkpoint.directory to another disk",
        errno.EEXIST: "check whether two processes write the same checkpoint, or a staging directory was used twice",
        errno.ENOENT: USE_ANOTHER,
        errno.ELOOP: "replace the symbolic link by the file itself; checkpoints are read from real files only",
    }
    kind = CheckpointSpaceError if is_out_of_space(error) else CheckpointError
    return kind(f"{what} {path}: {error.strerror or error}", hint=hints.get(error.errno or 0, ""))


def create_exclusively(path: Path) -> int:
    """Creates a file of mode 0600 and returns its descriptor. Raises OSError, also when the file exists."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def open_for_reading(path: Path) -> int:
    """Opens a file and returns its descriptor. Raises OSError, also for a symbolic link."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def read_file(path: Path, limit_bytes: int) -> bytes:
    """The content of a file. Raises CheckpointError when it cannot be read or is larger than `limit_bytes`."""
    try:
        with os.fdopen(open_for_reading(path), "rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise disk_error("cannot read", path, error) from error
    if len(content) > limit_bytes:
        raise CheckpointError(f"{path} is larger than {limit_bytes} bytes", hint=USE_ANOTHER)
    return content


def write_file(path: Path, content: bytes) -> None:
    """Writes a new file and fsyncs it. A file of the same name is removed first. Raises OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(create_exclusively(path), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Makes the names of the files in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Removes a directory and its content; does nothing if it is missing or a symbolic link. Raises OSError."""
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory)
