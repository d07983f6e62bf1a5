"""Reads traces of submitted jobs: CSV (also .gz) or Parquet, in the format of this project or in a public layout.

The columns of this project's format, in any order, other columns ignored:

    job_id         text
    submit_s       seconds since any time
    duration_s     seconds that the job ran; or `samples` that it trained
    cores          asked cores of all its processes; optional, as are the next two
    memory_bytes   asked memory of all its processes
    gpus           asked GPUs

Public layouts, known by their columns. ElasticFlow (microsoft/elasticflow-traces): job_id, submission_time, duration,
num_gpu. Helios (S-Lab-System-Group/HeliosData, `cluster_log.csv`): job_id, submit_time, duration, cpu_num, gpu_num.
openb (alibaba/clusterdata, gpu-v2023, pods): name, creation_time, scheduled_time, deletion_time, cpu_milli, memory_mib,
num_gpu. PAI (alibaba/clusterdata, gpu-v2020, `pai_task_table.csv`, which has no line of names): job_name, task_name,
inst_num, status, start_time, end_time, plan_cpu (100 is one core), plan_mem (GB), plan_gpu (100 is one GPU), gpu_type;
the tasks of a job are added up, and it is submitted when its first task starts.

Jobs without a length are left out: those that never ran, or had not ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import ConfigError

__all__ = ["LAYOUTS", "Trace", "TraceJob", "read_trace"]

Columns = Mapping[str, npt.NDArray[np.generic]]
Floats = npt.NDArray[np.float64]
MIB, GB = 2**20, 10**9
PAI_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)


class TraceJob(msgspec.Struct, frozen=True, gc=False):
    """One job of a trace. submit_s: since the first job. Either duration_s or samples is 0. cores, memory_bytes, gpus:
    asked for all processes together; 0: not known."""

    job_id: str
    submit_s: float
    duration_s: float = 0.0
    samples: int = 0
    cores: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0


class Trace(msgspec.Struct, frozen=True):
    """The jobs of a trace in order of submission. left_out: number of jobs without a length."""

    name: str
    layout: str
    jobs: tuple[TraceJob, ...]
    left_out: int


def read_trace(path: Path) -> Trace:
    """Reads a trace. Raises ConfigError if the file cannot be read, has none of the layouts, or has no job."""
    columns = _columns(path)
    layout = next((name for name, (needed, _) in LAYOUTS.items() if needed <= columns.keys()), None)
    if layout is None:
        raise ConfigError(
            f"{path} has the columns {', '.join(columns)}, which are those of no trace",
            hint=f"give it the columns job_id, submit_s and duration_s, or those of {', '.join(LAYOUTS)}",
        )
    jobs = LAYOUTS[layout][1](columns)
    kept = [job for job in jobs if (job.duration_s > 0 or job.samples > 0) and math.isfinite(job.submit_s)]
    if not kept:
        raise ConfigError(f"{path} has no job with a length", hint="check its columns of times")
    first_s = min(job.submit_s for job in kept)
    moved = (msgspec.structs.replace(job, submit_s=job.submit_s - first_s) for job in kept)
    return Trace(path.name, layout, tuple(sorted(moved, key=lambda job: job.submit_s)), len(jobs) - len(kept))


def _columns(path: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            table = pa.parquet.read_table(path)
        else:
            table = pa.csv.read_csv(path)
            if len(table.column_names) == len(PAI_COLUMNS) and "plan_cpu" not in table.column_names:
                # the first line of a PAI table is a job; only that table has this number of columns and no names
                named = pa.csv.ReadOptions(column_names=PAI_COLUMNS)
                again = pa.csv.read_csv(path, read_options=named)
                table = again if pa.types.is_floating(again.schema.field("start_time").type) else table
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="give a CSV or a Parquet file") from error
    return {name: table[name].to_numpy() for name in table.column_names}


# --- layouts ----------------------------------------------------------------------------------------------------------


def _numbers(columns: Columns, name: str) -> Floats:
    """A column as float64; missing values are 0, and so is a missing column. Times become seconds."""
    if name not in columns:
        return np.zeros(len(next(iter(columns.values()))))
    values = columns[name]
    if np.issubdtype(values.dtype, np.datetime64):
        return (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")  # type: ignore[no-any-return,operator]
    return np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)


def _jobs(
    ids: npt.NDArray[np.generic],
    submit_s: Floats,
    duration_s: Floats,
    *,
    samples: Floats | None = None,
    cores: Floats | None = None,
    memory_bytes: Floats | None = None,
    gpus: Floats | None = None,
) -> list[TraceJob]:
    zeros = np.zeros(len(ids))
    asked = [zeros if one is None else one for one in (samples, cores, memory_bytes, gpus)]
    rows = zip(ids.tolist(), submit_s.tolist(), duration_s.tolist(), *(one.tolist() for one in asked), strict=True)
    return [
        TraceJob(str(job), at_s, lasts_s, int(count), asked_cores, int(size), asked_gpus)
        for job, at_s, lasts_s, count, asked_cores, size, asked_gpus in rows
    ]


def _own(columns: Columns) -> list[TraceJob]:
    durations = _numbers(columns, "duration_s")
    samples = np.where(durations > 0, 0.0, _numbers(columns, "samples"))
    return _jobs(
        columns["job_id"],
        _numbers(columns, "submit_s"),
        durations,
        samples=samples,
        cores=_numbers(columns, "cores"),
        memory_bytes=_numbers(columns, "memory_bytes"),
        gpus=_numbers(columns, "gpus"),
    )


def _elasticflow(columns: Columns) -> list[TraceJob]:
    return _jobs(
        columns["job_id"],
        _numbers(columns, "submission_time"),
        _numbers(columns, "duration"),
        gpus=_numbers(columns, "num_gpu"),
    )


def _helios(columns: Columns) -> list[TraceJob]:
    return _jobs(
        columns["job_id"],
        _numbers(columns, "submit_time"),
        _numbers(columns, "duration"),
        cores=_numbers(columns, "cpu_num"),
        gpus=_numbers(columns, "gpu_num"),
    )


def _openb(columns: Columns) -> list[TraceJob]:
    began_s, ended_s = _numbers(columns, "scheduled_time"), _numbers(columns, "deletion_time")
    return _jobs(
        columns["name"],
        _numbers(columns, "creation_time"),
        np.where(began_s > 0, ended_s - began_s, 0.0),
        cores=_numbers(columns, "cpu_milli") / 1000,
        memory_bytes=_numbers(columns, "memory_mib") * MIB,
        gpus=_numbers(columns, "num_gpu"),
    )


def _pai(columns: Columns) -> list[TraceJob]:
    names, job = np.unique(columns["job_name"].astype(str), return_inverse=True)
    began_s, ended_s, times = (_numbers(columns, name) for name in ("start_time", "end_time", "inst_num"))
    first_s, last_s = np.full(len(names), math.inf), np.zeros(len(names))
    has_begun = began_s > 0
    np.minimum.at(first_s, job[has_begun], began_s[has_begun])
    # a job with a task that has not ended has no length
    np.maximum.at(last_s, job, np.where(has_begun & (ended_s <= 0), math.inf, ended_s))
    is_known = np.isfinite(first_s) & np.isfinite(last_s)
    durations = np.subtract(last_s, first_s, out=np.zeros(len(names)), where=is_known)
    asked = {name: np.bincount(job, times * _numbers(columns, name), len(names)) for name in PAI_COLUMNS[6:9]}
    cores, memory_gb, gpus = (one.astype(np.float64) for one in asked.values())
    return _jobs(names, first_s, durations, cores=cores / 100, memory_bytes=memory_gb * GB, gpus=gpus / 100)


# name -> the columns by which a layout is known, and its reader
LAYOUTS: dict[str, tuple[frozenset[str], Callable[[Columns], list[TraceJob]]]] = {
    "elastichost": (frozenset({"job_id", "submit_s"}), _own),
    "ElasticFlow": (frozenset({"job_id", "submission_time", "duration", "num_gpu"}), _elasticflow),
    "Helios": (frozenset({"job_id", "submit_time", "duration", "gpu_num", "cpu_num"}), _helios),
    "openb": (frozenset({"name", "creation_time", "scheduled_time", "deletion_time", "cpu_milli"}), _openb),
    "PAI": (frozenset(PAI_COLUMNS), _pai),
}
