"""Whether a process is alive, whether a run trains, and whether a supervisor still works in its directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, read_status

__all__ = ["LOCK_FILE", "has_ended", "is_alive", "is_locked", "is_running"]

LOCK_FILE = ".lock"  # in a run directory, and in others that one process works in


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs (a zombie does not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


def is_running(run_dir: Path) -> bool:
    """Whether the supervisor that wrote the status of this run last is alive and has not ended the run."""
    try:
        status = read_status(run_dir)
    except PreflightError:
        return False
    return is_alive(status.supervisor_pid) and status.state not in FINISHED_STATES


def is_locked(path: Path) -> bool:
    """Whether a supervisor works in this run directory. It is found in any pid namespace."""
    try:
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def has_ended(run_dir: Path) -> bool:
    """Whether nothing in this run directory changes any more, unless the run is resumed. A supervisor holds the lock
    until it has written its last line."""
    return not is_running(run_dir) and not is_locked(run_dir)
