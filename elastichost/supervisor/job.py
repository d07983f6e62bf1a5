"""`run_job`: opens everything a run needs, supervises the run, and closes everything however the run ends."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from elastichost.arena.host import Hold, arena_directory, create_directory, replica_directory, socket_directory
from elastichost.arena.owner import owner_of
from elastichost.atomic_write import is_out_of_space, write_atomically
from elastichost.checkpoint.places import RUN_FILE
from elastichost.clock import MonotonicClock
from elastichost.config.hosts import HostsFile
from elastichost.config.job import JobSpec
from elastichost.datasets.files import PINNED_FILE
from elastichost.errors import ConfigError, ElastichostError, PreflightError
from elastichost.host.stop_signals import StopSignals
from elastichost.plan import Plan, ProcessId
from elastichost.resources import HostInventory, OtherHost
from elastichost.runs.decisions import DECISIONS_FILE, Recorder
from elastichost.runs.events import (
    DirectoryLeftBehind,
    ProcessesKilled,
    RecordingStopped,
    RunEnded,
    RunFailed,
    RunStarted,
    Warned,
)
from elastichost.runs.journal import Journal
from elastichost.runs.journal_replay import ReplayedJournal
from elastichost.runs.observer import RunObserver, SilentObserver
from elastichost.runs.result import RunResult, read_result
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.reconciler import Limits
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import EMULATED, Entries
from elastichost.supervisor.launch.loggers import LoggerProcesses
from elastichost.supervisor.launch.servers import StartServer
from elastichost.supervisor.launch.shutdown import end_processes, remove_directories
from elastichost.supervisor.remote.hosts import Machines
from elastichost.supervisor.remote.job_bundle import files_for_others
from elastichost.supervisor.remote.keyring import Keyring
from elastichost.supervisor.remote.messages import SourceFile
from elastichost.supervisor.remote.multi_host_launcher import HostsLauncher
from elastichost.supervisor.startup.opened_run import OpenedRun, open_again, open_new
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.supervisor import Supervisor
from elastichost.wire.applied import is_audited
from elastichost.wire.commands import CommandServer
from elastichost.wire.crash import arm
from elastichost.wire.security.keys import Gate, gate_at
from elastichost.wire.sockets import ControlServer

__all__ = ["finished_result", "run_job"]


def run_job(
    job: JobSpec,
    run_dir: Path | None = None,
    observer: RunObserver | None = None,
    resume_from: Path | None = None,
    *,
    start_from: Path | None = None,
    entries: Entries | None = None,
    held: tuple[Hold, ...] = (),
    lent: HostInventory | None = None,
    start_server: StartServer | None = None,
    hosts: HostsFile | None = None,
) -> RunResult:
    """Trains a job to its end, in the calling process; call it from the main thread.

    run_dir: where a new run is written; default: `runs/<name>-<UTC>-<id>` under the working directory.
    resume_from: the directory of a run to resume. A run that is done is not changed, and its result is returned.
    start_from: a trained model to begin with: another run's directory, a directory of checkpoints, or one checkpoint.
    A new run takes the rows and the dense part from it, and trains all of its data. A resumed run also takes the
    position in the data from it.
    held: directories left by the resumed run that the caller holds (`arena.host.hold_left`).
    lent: the part of this host that the job may use; None: all of it. start_server: starts the fork server.
    hosts: the other machines that it trains on; the job's number of hosts includes them (`config_hosts.with_hosts`).
    The first SIGINT or SIGTERM drains the workers, saves a checkpoint and returns a result with exit code 75. Another
    SIGINT, or a SIGQUIT, kills all processes; another SIGTERM changes nothing.

    Raises the typed error the job failed with: ConfigError, DataError, ModelError, ArenaFullError, PreflightError
    before training; NonFiniteError, RestartBudgetError, HangError, CheckpointError, ... during it.
    """
    if resume_from is not None and (done := finished_result(resume_from)) is not None:
        return _left_as_it_is(done, resume_from, start_from, held)
    entries = entries or (EMULATED if job.emulate.enabled else Entries().with_precision(job.train.precision))
    arm("supervisor", 1 if resume_from is None else 2)
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        machines = stack.enter_context(Machines(hosts)) if hosts is not None else None
        launcher = stack.enter_context(LocalLauncher(entries.imports, entries.calls, start_server))
        elsewhere = _checked(machines, job)  # while the fork server imports its libraries
        if resume_from is None:
            opened = open_new(job, run_dir, start_from, lent, elsewhere)
        else:
            opened = open_again(job, resume_from, start_from, held, lent, elsewhere)
        try:
            if machines is not None:
                machines.check_files(files_of(opened.prepared))
            opened.directory.write_facts(job, opened.prepared.files, is_one_of_many=lent is not None)
            if hosts is not None:
                write_atomically(opened.directory.hosts, hosts.model_dump_json(indent=1).encode())
            observer = observer or SilentObserver()
            run = _open(job, opened, observer, entries, launcher, machines, shares_host=lent is not None)
            opened.begin()
            return _supervise_and_close(run, opened, signals)
        except PreflightError:
            if not opened.directory.was_used:
                opened.directory.discard()  # the model could not be built: no process trained, so no files are kept
            raise
        finally:
            opened.close()


def _checked(machines: Machines | None, job: JobSpec) -> dict[int, OtherHost] | None:
    """Checks that the other machines can train the job, and measures the links to them. Returns the number of each host
    and what the run may use of it; None: there are no other machines. Raises PreflightError."""
    if machines is None:
        return None
    machines.check(job)
    machines.measure_links()
    return machines.others(job.resources.memory)


def _left_as_it_is(done: RunResult, resumed: Path, start_from: Path | None, held: tuple[Hold, ...]) -> RunResult:
    """The result of a resumed run that is done already. Raises ConfigError if it should take over a checkpoint."""
    for one in held:
        one.release()
    if start_from is not None:
        raise ConfigError(
            f"the run in {resumed} has ended; a run that has ended cannot take over another checkpoint",
            hint="start a new run with `run JOB --from PATH`",
        )
    return done


def files_of(prepared: Preparation) -> tuple[str, ...]:
    """The files of the training data and the test data."""
    return (*prepared.train.files, *(prepared.test.files if prepared.test is not None else ()))


def finished_result(run_dir: Path) -> RunResult | None:
    """The result of a run that is done, so that it cannot be resumed; None: the run is not done."""
    found = read_result(run_dir)  # None for a damaged one, too: the resumed run writes it again
    return found if found is not None and found.status in ("done", "quarantined", "incomplete") else None


def _open(
    job: JobSpec,
    opened: OpenedRun,
    observer: RunObserver,
    entries: Entries,
    launcher: LocalLauncher,
    machines: Machines | None,
    *,
    shares_host: bool,
) -> RunContext:
    directory, run_id, resume_source = opened.directory, opened.run_id, opened.resume_source
    sockets, arena = socket_directory(run_id), arena_directory(run_id)
    others = {host: arena_directory(run_id, host) for host in range(1, job.resources.hosts)}
    if machines is not None:
        machines.open(run_id, _files_for_others(job, opened), entries.imports, entries.calls)
        others = {host: replica_directory(run_id, host) for host in others}
    held = resume_source.claim.held if resume_source.claim is not None else None
    kept = (arena, held.path) if held is not None else (arena,)
    if others:  # a run of several hosts resumes from its checkpoint, never from arenas
        launcher.clean_when_lost((sockets, arena, *others.values()), (), 0.0)
    else:
        launcher.clean_when_lost((sockets,), kept, job.supervision.keep_arena_s)
    create_directory(sockets, owner_of(os.getpid(), directory.path))
    journal = Journal(directory.journal, observer.on_event, keeps_leases=is_audited())
    job_id = int(run_id, 16)
    keyring = Keyring() if machines is not None else None
    control = ControlServer(f"ipc://{sockets}/control", job_id, _gate(machines, keyring))
    commands = CommandServer(opened.commands_address)
    return RunContext(
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
        launcher=launcher if machines is None else HostsLauncher(launcher, machines.launchers),
        machines=machines,
        keyring=keyring,
        elsewhere=machines.places(control.outer_address) if machines is not None else {},
        control=control,
        commands=commands,
        other_arenas=others,
        recorder=Recorder(directory.path / DECISIONS_FILE, lambda problem: journal.write(RecordingStopped(problem))),
        plan=Plan((), opened.prepared.plan.access, "the run has no plan yet"),
        limits=Limits(
            restarts=job.resources.restarts,
            restart_window_s=job.resources.restart_window_s,
            hang_timeout_s=job.supervision.hang_timeout_s,
            start_timeout_s=job.supervision.start_timeout_s,
        ),
        shares_host=shares_host,
    )


def _files_for_others(job: JobSpec, opened: OpenedRun) -> tuple[SourceFile, ...]:
    """The small files of the run that its processes on other machines read. Raises ModelError."""
    run_file = SourceFile(RUN_FILE, (opened.directory.path / RUN_FILE).read_bytes())
    pinned = SourceFile(PINNED_FILE, msgspec.json.encode(opened.prepared.files.for_other_hosts()))
    return (*files_for_others(job, Path.cwd()), run_file, pinned)


def _gate(machines: Machines | None, keyring: Keyring | None) -> Gate | None:
    """The authenticated socket on which processes of other machines reach the supervisor; None: there are none."""
    if machines is None or keyring is None:
        return None
    return Gate(gate_at(machines.address), keyring.own, keyring.allowed)


def _supervise_and_close(run: RunContext, opened: OpenedRun, signals: StopSignals) -> RunResult:
    prepared, resume_source = opened.prepared, opened.resume_source
    for warning in prepared.warnings:
        run.note(Warned(warning))
    if resume_source.claim is not None:
        _remember(run, resume_source.claim.replayed)
    try:
        return _supervise(run, Supervisor(run, prepared, resume_source, signals))
    finally:
        run.commands.close()
        run.control.close()
        run.recorder.close()
        run.journal.close()
        if run.journal.problem:
            print(f"cannot write the last lines of {run.directory.journal}: {run.journal.problem}", file=sys.stderr)


def _remember(run: RunContext, replayed: ReplayedJournal) -> None:
    """Continues the counts of the supervisor before this one: incarnations, roll-backs, supervisors."""
    run.roll_backs += replayed.roll_backs
    run.supervisor_number = replayed.supervisors + 1
    for name, incarnation in replayed.incarnations.items():
        role, _, index = name.rpartition("-")
        run.fleet.remember(
            msgspec.convert({"role": role, "index": int(index), "incarnation": incarnation}, ProcessId), run.now_s()
        )


def _supervise(run: RunContext, supervisor: Supervisor) -> RunResult:
    """Runs the job, then removes everything but the run directory."""
    run.note(RunStarted(run.run_id, run.directory.path.name))
    loggers = LoggerProcesses(run.job.logging.to, run.directory.path, run.supervisor_pid)
    result: RunResult | None = None
    try:
        result = supervisor.run()
        return result
    except ElastichostError as error:
        run.note(RunFailed(type(error).__name__, str(error)))
        result = supervisor.failed(error)
        raise
    except Exception as error:
        run.note(RunFailed(type(error).__name__, str(error), is_bug=True))
        raise
    finally:
        _end(run, supervisor, loggers, result)


def _end(run: RunContext, supervisor: Supervisor, loggers: LoggerProcesses, result: RunResult | None) -> None:
    """Ends all processes and removes their directories, waits for the loggers, and writes the result."""
    killed = end_processes(run.launcher)
    state = result.status if result is not None else "failed"
    supervisor.close(state)
    for problem in remove_directories(*run.arenas, run.sockets):
        run.note(DirectoryLeftBehind(problem))
    if killed:
        run.note(ProcessesKilled(tuple(map(str, killed))))
    for failed in loggers.close(run.job.logging.finish_s):
        run.note(failed)
    run.note(RunEnded(state))
    if result is not None:
        _write_result(run, result)


def _write_result(run: RunContext, result: RunResult) -> None:
    """Writes result.json. A full disk is only reported on stderr, because the run has ended in any case."""
    try:
        run.directory.write_result(result.to_bytes())
    except OSError as error:
        if not is_out_of_space(error):
            raise
        print(f"cannot write result.json in {run.directory.path}: {error.strerror}", file=sys.stderr)
