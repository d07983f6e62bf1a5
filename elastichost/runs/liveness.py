"""Whether a process is alive, whether a run trains, and whether a supervisor or a dispatcher works in its directory.

A supervisor and a dispatcher hold the lock of their directory until they end. The kernel releases the lock of a killed
one, whereas its pid may soon belong to another process, and says nothing on another host or in another pid namespace.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, RunStatus, read_status
from elastichost.run_files import STATUS_FILE

__all__ = ["LOCK_FILE", "has_ended", "is_alive", "is_at_work", "is_locked", "is_running", "is_worked_in"]

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
    """Whether a supervisor works in this run directory and has not ended the run."""
    try:
        status = read_status(run_dir)
    except PreflightError:
        return False
    return is_at_work(run_dir, status)


def is_at_work(run_dir: Path, status: RunStatus) -> bool:
    """Like `is_running`, of a status that was read from this run directory."""
    return status.state not in FINISHED_STATES and is_worked_in(run_dir, STATUS_FILE, status.supervisor_pid)


def is_worked_in(directory: Path, status_file: str, pid: int) -> bool:
    """Whether a supervisor or a dispatcher works in its directory.

    status_file: the name of the file that this process writes once a second. pid: the pid in this file. It decides only
    where the present user may not open the lock."""
    try:
        return _is_held(directory / LOCK_FILE)
    except PermissionError:  # only the user of the supervisor or the dispatcher may open its lock
        return _is_process_of_writer(pid, directory / status_file)
    except OSError:
        return False


def _is_process_of_writer(pid: int, file: Path) -> bool:
    """Whether a process with this id runs and belongs to the user that the file belongs to."""
    try:
        return is_alive(pid) and Path(f"/proc/{pid}").stat().st_uid == file.stat().st_uid
    except OSError:
        return False


def is_locked(path: Path) -> bool:
    """Whether a supervisor works in this run directory. It is found in any pid namespace."""
    try:
        return _is_held(path / LOCK_FILE)
    except OSError:
        return False


def _is_held(path: Path) -> bool:
    """Whether a process holds this lock. Raises OSError if it cannot be opened or its file system has no locks."""
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # shared, so that a reader never takes another reader for a supervisor
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def has_ended(run_dir: Path) -> bool:
    """Whether nothing in this run directory changes any more, unless the run is resumed. A supervisor holds the lock
    until it has written its last line."""
    return not is_running(run_dir) and not is_locked(run_dir)
