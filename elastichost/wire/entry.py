"""The frame around every spawned process: arguments in, typed failure out."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from elastichost.config.job import JobSpec, load_job
from elastichost.errors import ElastichostError, NonFiniteError
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import FailureReportMsg
from elastichost.wire.crash import arm
from elastichost.wire.sockets import ControlClient

__all__ = ["decode_arguments", "failure_report", "report_failure", "run_child", "run_loop"]


def decode_arguments(arguments_json: bytes) -> ChildArguments:
    """Raises msgspec.ValidationError for anything but ChildArguments."""
    return msgspec.json.decode(arguments_json, type=ChildArguments)


def failure_report(error: BaseException) -> FailureReportMsg:
    """What the supervisor is told of an error; a model's error carries the user's own traceback."""
    own = getattr(error, "traceback_text", "")
    text = own or "".join(traceback.format_exception(error))
    message = error.message if isinstance(error, ElastichostError) else str(error)
    hint = error.hint if isinstance(error, ElastichostError) else ""
    samples = error.samples if isinstance(error, NonFiniteError) else None
    return FailureReportMsg(type(error).__name__, message, hint, traceback_text=text, samples=samples)


def run_child(arguments_json: bytes, run: Callable[[ChildArguments, ControlClient], None]) -> int:
    """Runs a short-lived child with its own control connection. Returns the exit code."""
    arguments = decode_arguments(arguments_json)
    control = ControlClient(arguments.control_address, arguments.job_id, arguments.process, arguments.to_supervisor)
    try:
        run(arguments, control)
    except Exception as error:  # noqa: BLE001 - every failure of a child reaches the supervisor
        report_failure(control, error)
        return 1
    control.flush(5.0)
    return 0


class Loop(Protocol):
    """A worker's or a PS' whole life."""

    @property
    def control(self) -> ControlClient: ...

    def run(self) -> None: ...

    def close(self) -> None: ...


def run_loop(arguments_json: bytes, crash_role: str, make: Callable[[ChildArguments, JobSpec], Loop]) -> int:
    """Runs a long-lived child to its StopMsg. Returns the exit code."""
    arguments = decode_arguments(arguments_json)
    arm(crash_role, arguments.incarnation)
    # The resolved job says it all; the environment had its say when it was resolved.
    loop = make(arguments, load_job(Path(arguments.run_dir) / "job.resolved.toml", environ={}))
    try:
        loop.run()
    except Exception as error:  # noqa: BLE001 - every failure of a child reaches the supervisor
        report_failure(loop.control, error)
        return 1
    loop.close()
    return 0


def report_failure(control: ControlClient, error: BaseException) -> None:
    """Tells the supervisor and the log; closes the connection."""
    traceback.print_exception(error, file=sys.stderr)
    control.send(failure_report(error))
    control.flush(5.0)
