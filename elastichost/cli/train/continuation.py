"""`run --continue`: whether a run directory holds a run to resume. A cluster that starts a job again calls the same
command, and does not know how far the run came."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from elastichost.errors import PreflightError
from elastichost.run_files import JOURNAL_FILE, RESOLVED_JOB_FILE

if TYPE_CHECKING:
    from elastichost.arena.host import Hold
    from elastichost.config.job import JobSpec

__all__ = ["check_continues", "is_resumable"]


def is_resumable(run_dir: Path, held: Sequence[Hold]) -> bool:
    """Whether the directory holds a run that is done, has a checkpoint, or has left its arena (`held`).

    A run that left none of these had saved nothing: its directory is renamed, so that the run begins anew and its logs
    are kept. Raises PreflightError if a supervisor works in the directory. Raises CheckpointError, and leaves the
    directory, if it has checkpoints of which none can be used, or if its run.json is damaged or is missing beside
    checkpoints; ConfigError if its job file cannot be read."""
    from elastichost.runs.liveness import is_locked
    from elastichost.supervisor.job import finished_result

    if not (run_dir / JOURNAL_FILE).exists() and not (run_dir / RESOLVED_JOB_FILE).exists():
        return False
    if is_locked(run_dir):
        raise PreflightError(f"a supervisor works in {run_dir}", hint="wait until it has ended")
    if held or finished_result(run_dir) is not None or _has_checkpoint(run_dir):
        return True
    run_dir.rename(run_dir.with_name(f"{run_dir.name}-without-checkpoint-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"))
    return False


def _has_checkpoint(run_dir: Path) -> bool:
    """Whether the run has saved a checkpoint; its blocks are not read. Raises CheckpointError and ConfigError: a run
    whose checkpoints cannot be used must not begin anew, because the user would not notice that they are lost."""
    from elastichost.checkpoint.format import latest
    from elastichost.checkpoint.places import checkpoint_source, identity_lost, kept_places, read_identity
    from elastichost.config.job import load_job

    identity = read_identity(run_dir)
    if identity is None:
        if latest(*kept_places(run_dir), verify=False) is not None:
            raise identity_lost(run_dir)
        return False
    resolved = run_dir / RESOLVED_JOB_FILE
    source = checkpoint_source(run_dir, identity, *((load_job(resolved, environ={}),) if resolved.exists() else ()))
    return latest(*source.places, verify=False, run_id=source.run_id) is not None


def check_continues(run_dir: Path, job: JobSpec) -> None:
    """Raises ConfigError unless the run in the directory is of this job. The file of the model may lie elsewhere now:
    a cluster copies it to another directory for each start."""
    from elastichost.config.job import load_job
    from elastichost.config.resume import check_same_job

    before = load_job(run_dir / RESOLVED_JOB_FILE, environ={})
    was, now = Path(before.model.build), Path(job.model.build)
    if was.name == now.name and ".py:" in now.name:
        before = before.model_copy(update={"model": before.model.model_copy(update={"build": job.model.build})})
    check_same_job(before, job)
