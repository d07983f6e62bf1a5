"""Entry points of the measured runs. They differ from normal runs in one point: a PS waits a moment
after it has copied its rows for a checkpoint. Memory use peaks then, for a time too short to be measured reliably.

    python -m benchmarks.memory_estimate.run_entries JOB RUN_DIR
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from elastichost.supervisor.launch.launcher import Entries

__all__ = ["RunArguments", "forked", "server"]

WAIT_S = 1.5


class RunArguments(msgspec.Struct, frozen=True):
    job: str
    run_dir: str


def server(arguments_json: bytes) -> int:
    """Entry of a PS. Returns its exit code."""
    from elastichost.ps import main
    from elastichost.ps.snapshot import SnapshotWriter

    start = SnapshotWriter.start

    def wait_and_start(self: SnapshotWriter, *arguments: Any) -> None:
        time.sleep(WAIT_S)
        start(self, *arguments)

    SnapshotWriter.start = wait_and_start  # type: ignore[method-assign,assignment]
    return main.main(arguments_json)


def _entries() -> Entries:
    return Entries(
        server="benchmarks.memory_estimate.run_entries:server",
        imports=(*Entries().imports, "benchmarks.memory_estimate.run_entries"),
    )


def forked(arguments_json: bytes) -> int:
    """Entry of a job's supervisor, forked from the process that has torch imported. Returns its exit code."""
    from elastichost.config.job import load_job
    from elastichost.supervisor import run_job
    from elastichost.supervisor.launch.servers import fork_or_start

    arguments = msgspec.json.decode(arguments_json, type=RunArguments)
    job, run_dir = load_job(Path(arguments.job), environ={}), Path(arguments.run_dir)
    return run_job(job, run_dir, entries=_entries(), start_server=fork_or_start).exit_code


def _alone(job: str, run_dir: str) -> int:
    """Runs a job as `elastichost run` does."""
    from elastichost.cli import run_command_line
    from elastichost.supervisor import job as job_module

    job_module.Entries = _entries  # type: ignore[attr-defined,assignment]
    return run_command_line(["run", job, "--run-dir", run_dir, "--dashboard", "no"])


if __name__ == "__main__":
    raise SystemExit(_alone(sys.argv[1], sys.argv[2]))
