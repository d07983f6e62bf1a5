"""The working directory and the failure file of a job's processes: of its supervisor, and of the process that examines
it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.dispatcher.facts import FAILURE_FILE, JobFailure
from elastichost.errors import ElastichostError, RestartBudgetError

__all__ = ["leave_failure", "leave_unforeseen", "work_in"]

MOST_CHARACTERS = 2000  # of a message, which is shown in a table


def work_in(directory: str) -> None:
    """Changes to a directory and imports modules from it, as if `python -m elastichost` had been started there."""
    os.chdir(directory)
    if directory not in sys.path:
        sys.path.insert(0, directory)


def leave_failure(folder: Path, error: ElastichostError) -> int:
    """Writes `failure.json` to the job's folder. Returns the exit code for the process."""
    last_error = error.last_error if isinstance(error, RestartBudgetError) else ""
    _leave(folder, JobFailure(type(error).__name__, error.message, error.hint, last_error))
    return int(error.exit_code)


def leave_unforeseen(folder: Path, error: Exception, log: str) -> None:
    """Writes `failure.json` for an error of any other class; it tells the user where the traceback is. The caller must
    raise the error again, so that the process ends with a traceback in the log."""
    message = str(error)[:MOST_CHARACTERS] or "no message"
    _leave(folder, JobFailure(type(error).__name__, message, f"the traceback is at the end of {log}"))


def _leave(folder: Path, failure: JobFailure) -> None:
    write_atomically(folder / FAILURE_FILE, msgspec.json.encode(failure))
