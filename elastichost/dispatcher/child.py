"""What a process of a job begins and ends with, whether it looks at the job or supervises it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.dispatcher.facts import FAILURE_FILE, JobFailure
from elastichost.errors import ElastichostError, RestartBudgetError

__all__ = ["leave_failure", "leave_unforeseen", "work_in"]

MOST_CHARACTERS = 2000  # of a message: it is shown in a table


def work_in(directory: str) -> None:
    """As if it had been started there: modules are imported from there as `python -m elastichost` does."""
    os.chdir(directory)
    if directory not in sys.path:
        sys.path.insert(0, directory)


def leave_failure(folder: Path, error: ElastichostError) -> int:
    """`failure.json` in the job's folder; returns the exit code that it ends with."""
    last_error = error.last_error if isinstance(error, RestartBudgetError) else ""
    _leave(folder, JobFailure(type(error).__name__, error.message, error.hint, last_error))
    return int(error.exit_code)


def leave_unforeseen(folder: Path, error: Exception, log: str) -> None:
    """`failure.json` for an error that was not raised on purpose. Whoever calls this raises it again: the process ends
    with its traceback in the log, and the user is told where that is."""
    message = str(error)[:MOST_CHARACTERS] or "no message"
    _leave(folder, JobFailure(type(error).__name__, message, f"its traceback is at the end of {log}"))


def _leave(folder: Path, failure: JobFailure) -> None:
    write_atomically(folder / FAILURE_FILE, msgspec.json.encode(failure))
