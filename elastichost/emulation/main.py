"""Entries of the processes of an emulated job."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from elastichost.config.job import JobSpec, load_job
from elastichost.emulation.costs import scenario_of
from elastichost.emulation.load import shortage
from elastichost.emulation.model import INITIAL, emulated_model
from elastichost.emulation.server import EmulatedServer
from elastichost.emulation.worker import EmulatedWorker
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Codec
from elastichost.wire.control import ControlMessage, HelloMsg, ModelDescribedMsg
from elastichost.wire.data import DataMessage
from elastichost.wire.entry import Loop, run_child, run_loop
from elastichost.wire.sockets import ControlClient

__all__ = ["probe", "server", "warm", "worker"]


def warm() -> None:
    """Called in the fork server: makes what all processes need, so that they inherit it."""
    Codec(ControlMessage, 0, None)
    Codec(DataMessage, 0, None)
    np.random.default_rng(np.random.SeedSequence((0,)))


def worker(arguments_json: bytes) -> int:
    """Runs an emulated worker. Returns the exit code of the process."""
    return run_loop(arguments_json, "worker", lambda arguments, job: _late(EmulatedWorker, arguments, job))


def server(arguments_json: bytes) -> int:
    """Runs an emulated PS. Returns the exit code of the process."""
    return run_loop(arguments_json, "ps", lambda arguments, job: _late(EmulatedServer, arguments, job))


def _late(kind: type[EmulatedWorker] | type[EmulatedServer], arguments: ChildArguments, job: JobSpec) -> Loop:
    time.sleep(job.emulate.startup_s)  # emulates the time to schedule a pod and to pull its image
    return kind(arguments, job)


def probe(arguments_json: bytes) -> int:
    """Describes the emulated model to the supervisor. The model of the user is not built."""

    def run(arguments: ChildArguments, control: ControlClient) -> None:
        control.send(HelloMsg(arguments.role, arguments.index, arguments.incarnation, pid=os.getpid()))
        job = load_job(Path(arguments.run_dir) / RESOLVED_JOB_FILE, environ={})
        warning = shortage(job.resources, scenario_of(job), len(os.sched_getaffinity(0)))
        model = emulated_model(job.emulate.new_ids)
        control.send(ModelDescribedMsg(model=model, warnings=(warning,) if warning else ()), (INITIAL,))

    return run_child(arguments_json, run)
