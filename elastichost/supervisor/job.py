"""`run_job`: opens everything a run needs, supervises, and closes everything however the run ends."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from elastichost.arena.host import arena_directory, create_directory, owner_of, socket_directory
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.clock import MonotonicClock
from elastichost.config import JobSpec
from elastichost.errors import ElastichostError, PreflightError
from elastichost.observer import RunObserver, SilentObserver
from elastichost.plan import Plan
from elastichost.supervisor.checkpointing import find_checkpoint
from elastichost.supervisor.journal import Journal
from elastichost.supervisor.launch.local import LocalLauncher
from elastichost.supervisor.loop import Supervisor
from elastichost.supervisor.outcome import RunResult
from elastichost.supervisor.preflight import Preparation, preflight
from elastichost.supervisor.reconcile import Limits
from elastichost.supervisor.run import Entries, Run
from elastichost.supervisor.rundir import RunDirectory, new_run_path
from elastichost.supervisor.shutdown import end_processes, remove_directories
from elastichost.supervisor.signals import StopSignals
from elastichost.wire.sockets import ControlServer

__all__ = ["run_job"]


def run_job(
    job: JobSpec,
    run_dir: Path | None = None,
    observer: RunObserver | None = None,
    resume_from: Path | None = None,
    *,
    entries: Entries | None = None,
) -> RunResult:
    """Trains a job to its end, in the calling process; call it from the main thread.

    run_dir: default `runs/<name>-<UTC>-<id>` under the working directory, or the run that is resumed.
    resume_from: a run directory (its newest good checkpoint), or one checkpoint.
    The first SIGINT or SIGTERM drains, saves and returns a result with exit code 75; the second kills.

    Raises the typed error the job failed with: ConfigError, DataError, ModelError, ArenaFullError, PreflightError
    before training; NonFiniteError, RestartBudgetError, HangError, CheckpointError, ... during it.
    """
    entries = entries if entries is not None else Entries()
    with StopSignals() as signals, LocalLauncher(entries.imports, entries.calls) as launcher:
        prepared = preflight(job)  # while the fork server imports
        found = find_checkpoint(resume_from) if resume_from is not None else None
        run_id = secrets.token_hex(8)
        socket_directory(run_id)  # raises where no path is short enough, before there is a run directory
        path = run_dir or _resumed_run(resume_from) or new_run_path(Path.cwd(), job.job.name, run_id)
        directory = RunDirectory.open(path, job, resume=resume_from is not None)
        try:
            return _open_and_supervise(
                job, directory, run_id, observer or SilentObserver(), entries, launcher, prepared, found, signals
            )
        except PreflightError:
            if not directory.was_used:
                directory.discard()  # the model could not be built: nothing ran, so nothing stays
            raise
        finally:
            directory.close()


def _resumed_run(resume_from: Path | None) -> Path | None:
    is_run = resume_from is not None and (resume_from / "job.resolved.toml").exists()
    return resume_from if is_run else None


def _open_and_supervise(
    job: JobSpec,
    directory: RunDirectory,
    run_id: str,
    observer: RunObserver,
    entries: Entries,
    launcher: LocalLauncher,
    prepared: Preparation,
    found: FoundCheckpoint | None,
    signals: StopSignals,
) -> RunResult:
    sockets, arena = socket_directory(run_id), arena_directory(run_id)
    launcher.clean_when_lost((arena, sockets))
    create_directory(sockets, owner_of(os.getpid(), directory.path))
    journal = Journal(directory.journal, observer.on_event)
    job_id = int(run_id, 16)
    control = ControlServer(f"ipc://{sockets}/control", job_id)
    run = Run(
        job=job,
        run_id=run_id,
        job_id=job_id,
        entries=entries,
        clock=MonotonicClock(),
        directory=directory,
        sockets=sockets,
        arena=arena,
        journal=journal,
        observer=observer,
        launcher=launcher,
        control=control,
        plan=Plan((), prepared.plan.access, "nothing yet"),
        limits=Limits(
            restarts=job.resources.restarts,
            restart_window_s=job.resources.restart_window_s,
            hang_timeout_s=job.supervision.hang_timeout_s,
            start_timeout_s=job.supervision.start_timeout_s,
        ),
    )
    for warning in (*prepared.warnings, *(found.warnings if found is not None else ())):
        run.note("warning", warning)
    try:
        return _supervise(run, Supervisor(run, prepared, found, signals))
    finally:
        control.close()
        journal.close()


def _supervise(run: Run, supervisor: Supervisor) -> RunResult:
    """Runs it; then nothing is left of it but the run directory."""
    run.note("run_started", f"run {run.directory.path.name}", now=True, data={"run_id": run.run_id})
    result: RunResult | None = None
    try:
        result = supervisor.run()
        return result
    except ElastichostError as error:
        run.note("failed", str(error), now=True)
        result = supervisor.failed(error)
        raise
    finally:
        killed = end_processes(run.launcher)
        state = result.status if result is not None else "failed"
        supervisor.close({"killed": "stopped", "quarantined": "done"}.get(state, state))
        for problem in remove_directories(run.arena, run.sockets):
            run.note("left_behind", problem)
        if killed:
            run.note("killed", f"had to be killed: {', '.join(map(str, killed))}")
        run.note("run_ended", state, now=True)
        if result is not None:
            run.directory.write_result(result.to_bytes())
