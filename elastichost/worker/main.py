"""Entry of a worker process."""

from __future__ import annotations

from elastichost.config.job import JobSpec
from elastichost.wire.child import ChildArguments
from elastichost.wire.entry import Loop, run_loop
from elastichost.worker.loop import WorkerLoop
from elastichost.worker.sync.sync_loop import SyncWorkerLoop

__all__ = ["main", "worker_loop"]


def main(arguments_json: bytes) -> int:
    """Runs a worker process; returns its exit code."""
    return run_loop(arguments_json, "worker", worker_loop)


def worker_loop(arguments: ChildArguments, job: JobSpec) -> Loop:
    """The loop for this job: in sync mode workers train steps together, in the other modes each trains its leases."""
    return SyncWorkerLoop(arguments, job) if job.train.mode == "sync" else WorkerLoop(arguments, job)
