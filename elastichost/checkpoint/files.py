"""The file system as a checkpoint wants it: exclusive creation, no symbolic links, fsync, private modes."""

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

USE_ANOTHER = "use the checkpoint before this one"
_BLOCK_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}\.bin")


def check_block_file_name(name: str, directory: Path) -> None:
    """A manifest is data from a disk: a name in it must not lead out of its directory. Raises CheckpointError."""
    if not _BLOCK_FILE_NAME.fullmatch(name):
        raise CheckpointError(f"{directory}: {name!r} is not the name of a block file of this directory")


def disk_error(what: str, path: Path, error: OSError) -> CheckpointError:
    """An OSError as a CheckpointError that names the file."""
    hints = {
        errno.ENOSPC: "free some disk space, or set checkpoint.directory to another disk",
        errno.EDQUOT: "the disk quota is used up; set checkpoint.directory to another disk",
        errno.EEXIST: "two processes write the same checkpoint, or a staging directory was used twice",
        errno.ENOENT: USE_ANOTHER,
        errno.ELOOP: "it is a symbolic link; checkpoints are read from real files only",
    }
    kind = CheckpointSpaceError if is_out_of_space(error) else CheckpointError
    return kind(f"{what} {path}: {error.strerror or error}", hint=hints.get(error.errno or 0, ""))


def create_exclusively(path: Path) -> int:
    """A descriptor of a new file of mode 0600. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def open_for_reading(path: Path) -> int:
    """A descriptor; a symbolic link is refused. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def read_file(path: Path, limit_bytes: int) -> bytes:
    """All of a file. Raises CheckpointError when it cannot be read or is larger than `limit_bytes`."""
    try:
        with os.fdopen(open_for_reading(path), "rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise disk_error("cannot read", path, error) from error
    if len(content) > limit_bytes:
        raise CheckpointError(f"{path} is larger than {limit_bytes} bytes", hint=USE_ANOTHER)
    return content


def write_file(path: Path, content: bytes) -> None:
    """A new file with this content, fsynced; one of the same name is removed first. Raises OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(create_exclusively(path), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Removes a directory and what is in it, if it is there. Raises OSError."""
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory)
