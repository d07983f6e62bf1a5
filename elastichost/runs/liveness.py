"""Whether a process is alive, and whether a run trains."""

from __future__ import annotations

import os
from pathlib import Path

from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, read_status

__all__ = ["is_alive", "is_running"]


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
