"""Entry of a worker process."""

from __future__ import annotations

from elastichost.wire.entry import run_loop
from elastichost.worker.loop import WorkerLoop

__all__ = ["main"]


def main(arguments_json: bytes) -> int:
    """Returns the exit code of the process."""
    return run_loop(arguments_json, "worker", WorkerLoop)
