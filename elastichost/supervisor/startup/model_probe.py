"""Describes a job's model without a run: one process builds the model, and reports its parts, its tensors, or the times
of its steps."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from elastichost.arena.host import create_directory, reclaim, socket_directory
from elastichost.arena.owner import owner_of
from elastichost.config.job import JobSpec, to_toml
from elastichost.errors import JobFailedError, PreflightError, ProtocolError
from elastichost.host.process_meter import anonymous_bytes
from elastichost.plan import ProcessId
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.specs import ModelSpec
from elastichost.supervisor.core.reconciler import Failure, error_of
from elastichost.supervisor.launch.events import Exited, StartFailed
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import Entries, SpawnRequest
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import ControlMessage, FailureReportMsg, ModelDescribedMsg
from elastichost.wire.facts import StepTime, WorkingSet
from elastichost.wire.sockets import ControlServer

__all__ = ["DescribedModel", "describe_model", "time_steps"]

ENTRY, STRICT_ENTRY = "elastichost.worker.probe:size", "elastichost.worker.probe:size_strictly"
TIMING_ENTRY = "elastichost.worker.probe:time_steps"
PROCESS = ProcessId("probe", 0, 1)
PREPARED_TIMEOUT_S = 180.0
TURN_S = 0.1
END_TIMEOUT_S = 5.0
LAST_WORDS_S = 0.5  # wait for the report of a process that has ended: it may arrive after the exit


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """A model, as the process that built it describes it. working: the tensors of a training step; None: the model
    fails on the first samples, and a warning has the error. step_times: from `time_steps` alone. fork_server_bytes:
    anonymous memory of the fork server from which the process was forked; 0: not known. reader_bytes, model_bytes: see
    `ModelDescribedMsg`."""

    model: ModelSpec
    working: WorkingSet | None
    warnings: tuple[str, ...]
    step_times: tuple[StepTime, ...] = ()
    fork_server_bytes: int = 0
    reader_bytes: int = 0
    model_bytes: int = 0


def describe_model(job: JobSpec, launcher: LocalLauncher | None = None, *, is_strict: bool = False) -> DescribedModel:
    """Describes the model of a job that is not emulated, and removes the process and its directory again.

    launcher: a launcher that has imported the libraries of a worker and has no other caller meanwhile. None: a new
    launcher is started, which takes the seconds of an import of torch. is_strict: a whole batch runs forward and
    backward, and a failure on it is an error instead of a warning.
    Raises the error with which a run would end: ModelError, DataError, PreflightError, JobFailedError.
    """
    run_id, entry = secrets.token_hex(8), STRICT_ENTRY if is_strict else ENTRY
    if launcher is not None:
        launcher.clean_when_lost((socket_directory(run_id),))
        return _describe(job, launcher, run_id, entry)
    entries = Entries()
    with LocalLauncher(entries.imports, entries.calls) as own:
        own.clean_when_lost((socket_directory(run_id),))
        return _describe(job, own, run_id, entry)


def time_steps(job: JobSpec, launcher: LocalLauncher) -> DescribedModel:
    """Describes the model with the times of its steps, in every precision of this CPU. launcher, errors: as in
    `describe_model`."""
    run_id = secrets.token_hex(8)
    launcher.clean_when_lost((socket_directory(run_id),))
    return _describe(job, launcher, run_id, TIMING_ENTRY)


def _describe(job: JobSpec, launcher: LocalLauncher, run_id: str, entry: str) -> DescribedModel:
    prepared = launcher.wait_prepared(PREPARED_TIMEOUT_S)
    if prepared.error:
        raise PreflightError(
            f"the libraries of a worker cannot be imported:\n{prepared.error}", hint="run `elastichost doctor`"
        )
    directory = socket_directory(run_id)
    create_directory(directory, owner_of(os.getpid(), directory))
    try:
        (directory / RESOLVED_JOB_FILE).write_text(to_toml(job))
        control = ControlServer(f"ipc://{directory}/control", int(run_id, 16))
        try:
            arguments = _arguments(directory, int(run_id, 16))
            launcher.spawn(SpawnRequest(PROCESS, entry, arguments, directory / "log"))
            found = _listen(launcher, control, job.supervision.start_timeout_s)
            return replace(found, fork_server_bytes=anonymous_bytes(launcher.server_pid))
        finally:
            _end(launcher)
            control.close()
    finally:
        reclaim(directory)


def _arguments(directory: Path, job_id: int) -> bytes:
    return msgspec.json.encode(
        ChildArguments(
            role="probe",
            index=PROCESS.index,
            incarnation=PROCESS.incarnation,
            job_id=job_id,
            control_address=f"ipc://{directory}/control",
            run_dir=str(directory),
            arena_directory="",
            socket_directory=str(directory),
            cores=(),
            threads=1,
            access="direct",
            supervisor_pid=os.getpid(),
        )
    )


def _listen(launcher: LocalLauncher, control: ControlServer, timeout_s: float) -> DescribedModel:
    deadline_s = time.monotonic() + timeout_s
    ended: Exited | None = None
    while True:
        control.poll(TURN_S, launcher.descriptors())
        with contextlib.suppress(ProtocolError):
            while (envelope := control.receive()) is not None:
                if (found := _answer(envelope)) is not None:
                    return found
        for event in launcher.events():
            if isinstance(event, StartFailed) and event.process == PROCESS:
                raise PreflightError(f"the process that builds the model could not be started: {event.reason}")
            if isinstance(event, Exited) and event.process == PROCESS:
                ended, deadline_s = event, time.monotonic() + LAST_WORDS_S
        if time.monotonic() > deadline_s:
            if ended is not None:
                raise JobFailedError(f"the process that builds the model ended without a result: {ended.cause}")
            raise PreflightError(
                f"the model was not built within {timeout_s:g} s", hint="raise supervision.start_timeout_s"
            )


def _end(launcher: LocalLauncher) -> None:
    """Kills the process and waits for its exit: the next process has the same id, and must not get this exit."""
    deadline_s = time.monotonic() + END_TIMEOUT_S
    launcher.kill(PROCESS)
    while PROCESS in launcher.processes() and time.monotonic() < deadline_s:
        wait_readable(launcher.descriptors(), TURN_S)
        launcher.events()


def _answer(envelope: Envelope[ControlMessage]) -> DescribedModel | None:
    """The description of the model that a message contains; None: it contains none. Raises the error that the process
    reports."""
    match envelope.message:
        case FailureReportMsg() as report:
            raise error_of(
                Failure(report.error_type, report.message, report.hint, report.traceback_text, report.samples)
            )
        case ModelDescribedMsg() as described:
            working = msgspec.msgpack.decode(envelope.frames[1], type=WorkingSet | None)
            times = msgspec.msgpack.decode(envelope.frames[2], type=tuple[StepTime, ...])
            return DescribedModel(
                described.model,
                working,
                described.warnings,
                times,
                reader_bytes=described.reader_bytes,
                model_bytes=described.model_bytes,
            )
        case _:
            return None
