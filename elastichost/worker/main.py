"""Entry of a worker process."""

from __future__ import annotations

from pathlib import Path

from elastichost.config import load_job
from elastichost.wire.crash import arm
from elastichost.wire.entry import decode_arguments, report_failure
from elastichost.worker.loop import WorkerLoop

__all__ = ["main"]


def main(arguments_json: bytes) -> int:
    """Returns the exit code of the process."""
    arguments = decode_arguments(arguments_json)
    arm("worker", arguments.life)
    loop = WorkerLoop(arguments, load_job(Path(arguments.run_dir) / "job.resolved.toml", environ={}))
    try:
        loop.run()
    except Exception as error:  # noqa: BLE001 - every failure of a worker reaches the supervisor
        report_failure(loop.control, error)
        return 1
    loop.close()
    return 0
