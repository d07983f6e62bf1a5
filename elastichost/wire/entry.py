"""The main function of every spawned process: it decodes the arguments, runs the process, and reports a failure to the
supervisor as a typed error."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from elastichost.config.job import JobSpec, load_job
from elastichost.errors import ElastichostError, GpuMemoryError, NonFiniteError
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import FailureReportMsg
from elastichost.wire.crash import arm
from elastichost.wire.sockets import ControlClient

__all__ = ["decode_arguments", "failure_report", "report_failure", "run_child", "run_loop"]


# CUDA and its libraries raise a RuntimeError when a GPU has no free memory. Only the text of the error shows the cause.
_OUT_OF_GPU_MEMORY = ("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def decode_arguments(arguments_json: bytes) -> ChildArguments:
    """Decodes the arguments of a spawned process. Raises msgspec.ValidationError."""
    return msgspec.json.decode(arguments_json, type=ChildArguments)


def failure_report(error: BaseException) -> FailureReportMsg:
    """The report of an error for the supervisor. The report of a ModelError has the traceback of the user's code. An
    error that means that a GPU is full is reported as GpuMemoryError, whichever library raised it."""
    own = getattr(error, "traceback_text", "")
    text = own or "".join(traceback.format_exception(error))
    message = error.message if isinstance(error, ElastichostError) else str(error)
    hint = error.hint if isinstance(error, ElastichostError) else ""
    samples = error.samples if isinstance(error, NonFiniteError) else None
    error_type = GpuMemoryError.__name__ if _is_gpu_full(error) else type(error).__name__
    return FailureReportMsg(error_type, message, hint, traceback_text=text, samples=samples)


def _is_gpu_full(error: BaseException) -> bool:
    # torch.OutOfMemoryError is recognised by its name, because some of these processes do not import torch.
    if type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_GPU_MEMORY)


def run_child(arguments_json: bytes, run: Callable[[ChildArguments, ControlClient], None]) -> int:
    """Runs a short-lived child with its own control connection. Returns the exit code."""
    arguments = decode_arguments(arguments_json)
    control = ControlClient(arguments.control_address, arguments.job_id, arguments.process, arguments.to_supervisor)
    try:
        run(arguments, control)
    except Exception as error:  # noqa: BLE001 - every failure of a child is reported to the supervisor
        report_failure(control, error)
        return 1
    control.flush(5.0)
    return 0


class Loop(Protocol):
    """The main loop of a worker or a PS."""

    @property
    def control(self) -> ControlClient: ...

    def run(self) -> None: ...

    def close(self) -> None: ...


def run_loop(arguments_json: bytes, crash_role: str, make: Callable[[ChildArguments, JobSpec], Loop]) -> int:
    """Runs a long-lived child until its StopMsg. Returns the exit code."""
    arguments = decode_arguments(arguments_json)
    arm(crash_role, arguments.incarnation)
    # The environment was already applied when the job was resolved.
    loop = make(arguments, load_job(Path(arguments.run_dir) / RESOLVED_JOB_FILE, environ={}))
    try:
        loop.run()
    except Exception as error:  # noqa: BLE001 - every failure of a child is reported to the supervisor
        report_failure(loop.control, error)
        return 1
    loop.close()
    return 0


def report_failure(control: ControlClient, error: BaseException) -> None:
    """Writes an error to the log, reports it to the supervisor, and closes the connection."""
    traceback.print_exception(error, file=sys.stderr)
    control.send(failure_report(error))
    control.flush(5.0)
