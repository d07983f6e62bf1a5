"""The process that examines a job before its start: it checks data and model, and estimates what the job will need.

It is forked from a process that has imported torch. The user's model is built here, so a job that cannot run fails
here, with a typed error.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.arena.host import bytes_of_arenas
from elastichost.atomic_write import write_atomically
from elastichost.config.job import JobSpec, load_job
from elastichost.config.tables import table_settings
from elastichost.datasets import open_reader
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.remote import batch_bytes, remote_rate
from elastichost.datasets.sources.settings import fixed_knobs
from elastichost.dispatcher.child import leave_failure, leave_unforeseen, work_in
from elastichost.dispatcher.core.demands import Examined, MemoryOfSize
from elastichost.dispatcher.core.shapes import twin_of
from elastichost.dispatcher.facts import JOB_FILE
from elastichost.errors import ElastichostError
from elastichost.resources import HostInventory
from elastichost.specs import TableSpec
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import EMULATED, Entries
from elastichost.supervisor.launch.servers import fork_or_start
from elastichost.supervisor.startup.memory_estimate import memory_facts
from elastichost.supervisor.startup.preflight import Preparation, preflight
from elastichost.supervisor.startup.tuner_settings import bounds_of_job
from elastichost.tuner.memory.peak_memory import estimate_peak
from elastichost.tuner.memory.peak_memory_facts import BESIDE
from elastichost.wire.facts import MOST_CONNECTIONS

__all__ = ["EXAMINED_FILE", "ExamineArguments", "main"]

EXAMINED_FILE = "examined.json"
SAMPLED_ROWS = 256  # samples from which the size of a sample is measured


class ExamineArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of the process. folder: the job's folder, with its resolved job file. host: the resources that all
    jobs together may use. keeps_sizes: the job keeps the size that it chooses alone. log: the file of the output."""

    job: str
    folder: str
    working_directory: str
    host: HostInventory
    keeps_sizes: bool = False
    log: str = ""


def main(arguments_json: bytes) -> int:
    """The entry of the process. Writes `examined.json` or `failure.json` to the job's folder, and returns the exit
    code."""
    arguments = msgspec.json.decode(arguments_json, type=ExamineArguments)
    folder = Path(arguments.folder)
    try:
        work_in(arguments.working_directory)
        found = examine(load_job(folder / JOB_FILE, environ={}), arguments)
    except ElastichostError as error:
        return leave_failure(folder, error)
    except Exception as error:
        leave_unforeseen(folder, error, arguments.log)
        raise
    write_atomically(folder / EXAMINED_FILE, msgspec.json.encode(found))
    return 0


def examine(job: JobSpec, arguments: ExamineArguments) -> Examined:
    """Examines a job. Raises the errors that its run would raise before it trains: ConfigError, DataError, ModelError,
    ArenaFullError, PreflightError."""
    # A job waits for the others, so what their arenas hold now counts as free.
    prepared = preflight(job, spare_bytes=bytes_of_arenas(), lent=_one_gpu(arguments.host))
    plan, has_gpu = prepared.plan, bool(prepared.initial_plan.request.gpus)
    bounds = bounds_of_job(job, plan, len(prepared.cores))
    # a speed by number of workers, on which the choice of a size is based, holds for workers of one kind only
    is_open = job.tuner.mode != "off" and not arguments.keeps_sizes and not has_gpu
    workers = len(plan.workers)
    least, most = (bounds.least.workers, bounds.most.workers) if is_open else (workers, workers)
    ids = float(sum(len(table.features) for table in prepared.tables))
    memory, breakdown = _memory(job, prepared, least, most)
    return Examined(
        job=arguments.job,
        samples_planned=prepared.train.samples * job.train.epochs,
        least_workers=least,
        most_workers=most,
        twin=twin_of(job),
        memory=memory,
        servers=len(plan.servers),
        threads=max((spec.threads for spec in plan.workers), default=1),
        reader_samples_per_s=_reader_rate(job),
        row_bytes=_row_bytes(job, prepared.tables),
        ids_per_sample=ids,
        gpus=len(prepared.initial_plan.request.gpus),
        size_is_open=least < most,
        breakdown=breakdown,
        warnings=prepared.warnings,
    )


def _one_gpu(host: HostInventory) -> HostInventory:
    """The host with its smallest GPU only: a job is lent at most one."""
    return msgspec.structs.replace(host, gpus=tuple(sorted(host.gpus, key=lambda gpu: gpu.memory_bytes)[:1]))


def _reader_rate(job: JobSpec) -> float:
    """Samples/s of one worker's reader at the rate of `data.remote`, over all connections that it may have; 0: the job
    states no rate."""
    rate = remote_rate(job)
    if rate is None or not rate.bytes_per_s or job.emulate.enabled:
        return 0.0
    open_connections = MOST_CONNECTIONS if job.tuner.mode == "act" else 1
    bytes_per_s = rate.bytes_per_s * fixed_knobs(job.data.input).get("connections", open_connections)
    reader = open_reader(job, "train")
    unit = reader.describe().units[0]
    if isinstance(reader, UnitReader):
        return bytes_per_s * unit.samples / max(1.0, reader.stored_bytes(unit))
    size = min(SAMPLED_ROWS, unit.samples)
    batch = next(iter(reader.batches(unit, 0, size, size)))
    return bytes_per_s * batch.size / max(1, batch_bytes(batch))


def _row_bytes(job: JobSpec, tables: tuple[TableSpec, ...]) -> int:
    """Bytes of all float32 rows that one sample reads, with one id for each feature."""
    return sum(4 * table_settings(job, table.name).dim * len(table.features) for table in tables)


def _memory(
    job: JobSpec, prepared: Preparation, least: int, most: int
) -> tuple[tuple[MemoryOfSize, ...], tuple[tuple[str, int], ...]]:
    """Returns the estimated peaks with the fewest and with the most workers, and (name, bytes) of the parts of the
    first."""
    entries = EMULATED if job.emulate.enabled else Entries()
    with LocalLauncher(entries.imports, entries.calls, fork_or_start) as launcher:
        facts = memory_facts(job, prepared, launcher, BESIDE)
    estimates = [
        (workers, estimate_peak(msgspec.structs.replace(facts, workers=workers))) for workers in sorted({least, most})
    ]
    sizes = tuple(
        MemoryOfSize(workers, found.host_bytes, found.gpu_bytes, found.arena_bytes) for workers, found in estimates
    )
    return sizes, tuple((part.name, part.bytes) for part in estimates[0][1].parts)
