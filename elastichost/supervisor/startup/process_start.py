"""Requests a process from the launcher of its host, with its arguments, its environment and its log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from elastichost.resources import GpuDevice
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.core_assignment import gpu_environment
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.wire.child import ChildArguments
from elastichost.wire.security.keys import KeyPair

__all__ = ["request_process"]


def request_process(run: RunContext, record: ProcessRecord, keys: KeyPair | None, gpus: Sequence[GpuDevice]) -> None:
    """Requests the process of a record. keys: those of the process, None without other machines. gpus: of the job."""
    spec = record.spec
    run.launcher.spawn(
        SpawnRequest(
            record.process,
            run.entries.of(spec.role),
            _arguments(run, record, keys),
            run.directory.log_of(record.process),
            host=spec.host,
            cores=() if run.job.emulate.enabled else spec.cores,  # an emulated process only simulates its cores
            environment=gpu_environment(spec, gpus),
        )
    )


def _arguments(run: RunContext, record: ProcessRecord, keys: KeyPair | None) -> bytes:
    spec, process = record.spec, record.process
    place, keyring = run.place(spec.host), run.keyring
    return msgspec.json.encode(
        ChildArguments(
            role=spec.role,
            index=process.index,
            incarnation=process.incarnation,
            job_id=run.job_id,
            control_address=place.control_address,
            run_dir=place.run_dir,
            arena_directory="" if spec.role == "probe" else place.arena,
            socket_directory=place.sockets,
            cores=spec.cores,
            threads=spec.threads,
            access=run.plan.access,
            supervisor_pid=run.supervisor_pid,
            gpu=spec.gpu,
            gpu_memory_fraction=spec.gpu_memory_fraction,
            host=spec.host,
            gate=place.gate if spec.role == "server" else "",
            keys=keys,
            supervisor_key=keyring.own.public if keyring is not None and place.is_elsewhere else "",
        )
    )
