"""Whether somebody lives in a directory of a run, told by a lock on its LOCK file.

A pid says nothing in another pid namespace (a container that shares /dev/shm with its host), and may be another
process' by now. A lock of the kernel holds across namespaces, and ends with the process that has it.

    exclusive  the supervisor (or agent, or dispatcher) that the directory belongs to: it is *led*
    shared     the keeper of an arena whose supervisor has died: whoever resumes the run may take it over
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

__all__ = ["LOCK_FILE", "SharedDirectoryLock", "has_lock", "is_led", "is_living", "lead_directory", "release_directory"]

LOCK_FILE = "LOCK"
# Longer than the moment for which somebody who only looks has the lock.
KEEP_PATIENCE_S, LOOK_EVERY_S = 0.2, 0.005

# (this process, descriptor) of the directories that it leads: a forked child leads none.
_led: dict[Path, tuple[int, int]] = {}


def lead_directory(directory: Path, name: Path | None = None) -> None:
    """This process leads the directory from now on, until `release_directory` or its own end. name: that the directory
    is going to have. The lock is a new file in place of an old one, which the keeper that is left behind may have.
    Raises OSError."""
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
    """This process leads it no more; nothing happens if it did not."""
    pid, descriptor = _led.pop(directory, (0, -1))
    if pid == os.getpid():
        os.close(descriptor)


def is_led(directory: Path) -> bool:
    """Whether the process that it belongs to lives, in whatever namespace."""
    return not _may_lock(directory, fcntl.LOCK_SH)


def has_lock(directory: Path) -> bool:
    """Without one nobody can be seen to live there, and its owner's pid is all there is to go by."""
    return (directory / LOCK_FILE).exists()


def is_living(directory: Path) -> bool:
    """Whether it is led, or kept for whoever resumes the run."""
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
    """-1: there is no lock."""
    with contextlib.suppress(OSError):
        return os.open(directory / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    return -1


class SharedDirectoryLock:
    """A directory whose owner has died, kept until `close`: `clean` leaves it alone. It keeps nothing while somebody
    leads it, or if it is gone."""

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
        """May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
