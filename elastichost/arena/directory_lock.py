"""A lock on the LOCK file of a run's directory, which shows whether the process that owns the directory is alive.

A pid means nothing in another pid namespace (a container that shares /dev/shm with its host), and the kernel may have
given it to another process. A kernel lock (flock) is visible across namespaces and ends with the process that holds it.

    exclusive  held by the supervisor, agent or dispatcher that owns the directory: the directory is *led*
    shared     held by the fork server that keeps an arena after its supervisor died: a resumed run may take it over
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

__all__ = ["LOCK_FILE", "SharedDirectoryLock", "has_lock", "is_led", "is_living", "lead_directory", "release_directory"]

LOCK_FILE = "LOCK"
# Longer than a process that only tests the lock holds it.
KEEP_PATIENCE_S, LOOK_EVERY_S = 0.2, 0.005

# Directories that this process leads: (its pid, descriptor of the lock). The pid differs in a forked child, which
# leads none of them.
_led: dict[Path, tuple[int, int]] = {}


def lead_directory(directory: Path, name: Path | None = None) -> None:
    """Makes this process lead the directory until `release_directory` or until the process ends.

    name: the path that the caller will rename the directory to. The lock is a new file that replaces an old one,
    because the keeper of a dead supervisor's arena may still hold the old file. Raises OSError.
    """
    making = directory / f"{LOCK_FILE}.new"
    descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        making.rename(directory / LOCK_FILE)
    except OSError:
        os.close(descriptor)
        raise
    release_directory(name or directory)
    _led[name or directory] = os.getpid(), descriptor


def release_directory(directory: Path) -> None:
    """Ends this process' lead of the directory. Does nothing if this process does not lead it."""
    pid, descriptor = _led.pop(directory, (0, -1))
    if pid == os.getpid():
        os.close(descriptor)


def is_led(directory: Path) -> bool:
    """Whether the process that leads the directory is alive, in any pid namespace."""
    return not _may_lock(directory, fcntl.LOCK_SH)


def has_lock(directory: Path) -> bool:
    """Whether the directory has a LOCK file. Without one only the owner's pid shows whether the owner is alive."""
    return (directory / LOCK_FILE).exists()


def is_living(directory: Path) -> bool:
    """Whether the directory is led, or kept for a resumed run."""
    return not _may_lock(directory, fcntl.LOCK_EX)


def _may_lock(directory: Path, kind: int) -> bool:
    descriptor = _open(directory)
    if descriptor < 0:
        return True
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open(directory: Path) -> int:
    """The descriptor of the LOCK file; -1 if there is none."""
    with contextlib.suppress(OSError):
        return os.open(directory / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    return -1


class SharedDirectoryLock:
    """Keeps a directory whose owner has died until `close`: `python -m elastichost clean` does not remove it. The lock
    is not taken if another process leads the directory or if it has no LOCK file."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = _open(directory)
        deadline_s = time.monotonic() + KEEP_PATIENCE_S
        while self._descriptor >= 0:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    self.close()
                time.sleep(LOOK_EVERY_S)

    def close(self) -> None:
        """Releases the lock. A repeated call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
