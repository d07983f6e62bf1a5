"""The program of a logger's process: `python -m elastichost.loggers.process RUN_DIR NAME SUPERVISOR_PID`.

It follows the run until the run has ended and everything has arrived, or until its supervisor is gone and everything
has arrived. What it prints goes to RUN/logs/logger-NAME.log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Must be set before numpy is imported, as in __main__. Training needs the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from elastichost.clock.backoff import backoff_s
from elastichost.config.job import load_job
from elastichost.errors import PreflightError
from elastichost.loggers.delivery import Delivery
from elastichost.loggers.logger import Logger, LoggerError, Opened
from elastichost.loggers.registry import open_logger
from elastichost.metrics import FINISHED_STATES, read_status
from elastichost.run_files import RESOLVED_JOB_FILE

__all__ = ["deliver", "main", "status_under"]

POLL_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # while the logger cannot send
NICE = 10


def deliver(run_dir: Path, name: str, final_status: Callable[[], str]) -> None:
    """Sends all values of the run to the logger, until the run has ended and all have arrived. final_status: how the
    run ended, "" while it goes on. Raises LoggerError when the logger cannot be opened at all, and what its library
    raises at the end."""

    def opened(key: str) -> Logger:
        job = load_job(run_dir / RESOLVED_JOB_FILE, environ={})
        return open_logger(name, Opened(run_dir, run_dir.name, job, key))

    delivery = Delivery(run_dir, name, opened)
    said = ""
    while True:
        status = final_status()  # before the files are read: what is read then is complete
        delivery.turn()
        if delivery.problem != said:
            said = delivery.problem
            print(f"{name}: {said or 'works again'}", file=sys.stderr, flush=True)
        if status and delivery.is_complete:
            delivery.close(status)
            return
        time.sleep(backoff_s(delivery.failures, FIRST_PAUSE_S, LONGEST_PAUSE_S) if delivery.failures else POLL_S)


def status_under(supervisor_pid: int, run_dir: Path) -> str:
    """How the run ended under this supervisor, which is the parent of this process; "" while it goes on."""
    with contextlib.suppress(PreflightError):
        status = read_status(run_dir)
        if status.supervisor_pid == supervisor_pid and status.state in FINISHED_STATES:
            return status.state
    return "" if os.getppid() == supervisor_pid else "killed"


def main(arguments: list[str]) -> int:
    run_dir, name, supervisor_pid = Path(arguments[0]), arguments[1], int(arguments[2])
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the supervisor decides when the run ends
    try:
        deliver(run_dir, name, lambda: status_under(supervisor_pid, run_dir))
    except LoggerError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
