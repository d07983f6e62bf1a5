"""Collects the facts from which `tuner.memory.peak_memory` estimates the peak memory of a job before it starts.

A separate process builds the model (`model_probe`). This process reads the beginning of the data. The number of
processes is that of the first plan. No run directory and no arena is made.
"""

from __future__ import annotations

import msgspec

from elastichost.config.job import JobSpec
from elastichost.config.metric_names import group_columns, metric_of
from elastichost.datasets import DatasetDescription, Reader, open_reader
from elastichost.datasets.reader import UnitReader
from elastichost.specs import DenseSpec, ModelSpec, TableSpec
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.servers import MALLOC_ENVIRONMENT
from elastichost.supervisor.startup.data_sample import DataSample, TableSample, sample_data
from elastichost.supervisor.startup.model_probe import DescribedModel, describe_model
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.tuner.memory.peak_memory import MemoryEstimate, estimate_peak
from elastichost.tuner.memory.peak_memory_facts import (
    ALONE,
    EMULATED,
    EMULATED_BESIDE,
    JobMemoryFacts,
    ProcessBases,
    UnitMemory,
)
from elastichost.tuner.placement.readers import readers_of

__all__ = ["estimate_memory", "memory_facts"]

BLOCK_BYTES = int(MALLOC_ENVIRONMENT["MALLOC_MMAP_THRESHOLD_"])
# Bytes of a value while a row group is decoded, besides the decoded samples. A number: its column and its page. A
# string: its index in the dictionary.
NUMBER_BYTES, STRING_BYTES = 8, 4
COPIED_BYTES = 11_000_000  # pages that a fork server shares with its children and that are copied when written
UNSEEN = 0.1  # a row is evicted up to this share of its horizon later than it may be


def estimate_memory(
    job: JobSpec,
    prepared: Preparation,
    launcher: LocalLauncher | None = None,
    bases: ProcessBases = ALONE,
    described: DescribedModel | None = None,
) -> MemoryEstimate:
    """Estimates the peak memory of a job in the size of its first plan. Arguments and errors: see `memory_facts`."""
    return estimate_peak(memory_facts(job, prepared, launcher, bases, described))


def memory_facts(
    job: JobSpec,
    prepared: Preparation,
    launcher: LocalLauncher | None = None,
    bases: ProcessBases = ALONE,
    described: DescribedModel | None = None,
) -> JobMemoryFacts:
    """Returns the facts for the estimate. With another value of `workers` they give the estimate of another size.

    launcher: a launcher that has imported the libraries of a worker and has no other caller meanwhile; the call then
    takes tenths of a second. None: a new launcher is started, which takes seconds. bases: BESIDE for a job whose
    supervisor is forked from a process that has imported torch. described: the model of the job, where a process has
    built it already.
    Raises the error with which a run would end: ModelError, DataError, PreflightError, JobFailedError.
    """
    if job.emulate.enabled:
        return _emulated(job, prepared, EMULATED if bases == ALONE else EMULATED_BESIDE)
    described = described or describe_model(job, launcher)
    if bases == ALONE and described.fork_server_bytes:  # its size depends on the libraries
        bases = msgspec.structs.replace(bases, fork_server=described.fork_server_bytes + COPIED_BYTES)
    model, plan, is_sync = described.model, prepared.plan, job.train.mode == "sync"
    batch_size = job.train.largest_part
    reader = open_reader(job, "train")
    sample = sample_data(reader, model.tables, job.data.categorical, batch_size)
    kept = [_kept(job, prepared, *pair) for pair in zip(model.tables, sample.tables, strict=True)]
    return JobMemoryFacts(
        model=model,
        workers=len(plan.workers),
        servers=len(plan.servers),
        access="direct" if plan.access == "direct" else "served",  # mixed takes at most as much as served
        batch_size=batch_size,
        rows=tuple(rows for rows, _ in kept),
        ids=tuple(ids for _, ids in kept),
        ids_per_batch=tuple(table.per_batch for table in sample.tables),
        sample_ids=sample.ids,
        sample_features=len(job.data.categorical),
        sample_bytes=_sample_bytes(job, prepared.train),
        limit_bytes=prepared.memory_bytes,
        block_bytes=BLOCK_BYTES,
        micro_batches=job.train.micro_batches if is_sync else 0,
        readers=max((len(readers_of(spec, job)) for spec in plan.workers), default=0),
        test_samples=prepared.test.samples if prepared.test is not None else 0,
        score_bytes=_score_bytes(job),
        own_metrics_bytes=_own_metrics_bytes(job, prepared),
        own_reader_bytes=described.reader_bytes,
        own_model_bytes=described.model_bytes,
        test_unit=_unit(job, open_reader(job, "test"), sample) if prepared.test is not None else UnitMemory(),
        train_unit=_unit(job, reader, sample),
        has_periodic_checkpoints=job.checkpoint.every_s > 0,
        has_tuner=job.tuner.mode != "off",
        gpus=len(prepared.initial_plan.request.gpus),
        is_model_on_gpu=job.resources.model_memory == "gpu",
        working=described.working,
        bases=bases,
        notes=described.warnings,
    )


def _emulated(job: JobSpec, prepared: Preparation, bases: ProcessBases) -> JobMemoryFacts:
    nothing = ModelSpec((), (), DenseSpec((), 0, 0), 0, 0)
    return JobMemoryFacts(
        model=nothing,
        workers=len(prepared.plan.workers),
        servers=len(prepared.plan.servers),
        access="served",
        batch_size=job.train.batch_size,
        rows=(),
        ids=(),
        ids_per_batch=(),
        sample_ids=0.0,
        sample_features=0,
        sample_bytes=0.0,
        limit_bytes=prepared.memory_bytes,
        block_bytes=BLOCK_BYTES,
        is_emulated=True,
        bases=bases,
    )


# --- evaluations ------------------------------------------------------------------------------------------------------

SCORE_BYTES = 90  # of a test sample: scores, labels, and float64 values for the metrics
GROUP_BYTES = 18  # of a test sample and a group column: ids and flags, before and after they are joined
RANKING_BYTES = 110  # of a test sample, while the samples of groups are ranked (tracemalloc: 101)
OWN_PROCESS_BYTES = 60 << 20  # the process that calls the user's metric functions, with numpy
OWN_SAMPLE_BYTES = 48  # of a test sample and label, there: three float64 arrays and their copies


def _score_bytes(job: JobSpec) -> int:
    """Bytes of a test sample in the supervisor during an evaluation."""
    groups = len(group_columns(job.evaluate.metrics))
    return SCORE_BYTES + GROUP_BYTES * groups + RANKING_BYTES * (groups > 0)


def _own_metrics_bytes(job: JobSpec, prepared: Preparation) -> int:
    """Bytes of the process that calls the user's metric functions; 0: there is none. What the functions themselves
    take is not known."""
    own = [one for text in job.evaluate.metrics if (one := metric_of(text)) is not None and one.kind == "own"]
    if not own or prepared.test is None:
        return 0
    return OWN_PROCESS_BYTES + OWN_SAMPLE_BYTES * prepared.test.samples * len(job.data.labels)


# --- rows -------------------------------------------------------------------------------------------------------------


def _kept(job: JobSpec, prepared: Preparation, table: TableSpec, sample: TableSample) -> tuple[float, float]:
    """(rows, ids in the index) of a table at the end of the run. Later epochs have the same ids, so they matter only if
    an id needs several sightings before it gets a row."""
    if sample.law is None:
        return float(table.rows), 0.0
    passes = min(job.train.epochs, table.admit_after)
    samples = float(prepared.train.samples)
    if table.evict_after_samples:
        samples = min(samples, (1 + UNSEEN) * table.evict_after_samples)
    draws = sample.ids * samples
    ids = sample.law.distinct(draws)
    rows = ids if table.admit_after == 1 else sample.law.distinct(draws * passes, table.admit_after)
    return rows, ids


# --- data -------------------------------------------------------------------------------------------------------------


def _sample_bytes(job: JobSpec, described: DatasetDescription) -> float:
    """Bytes of a sample without its ids: numbers, labels, weight, and the true probability of synthetic data."""
    return 4.0 * (described.num_dense + described.num_labels + bool(job.data.weight) + 1)


def _unit(job: JobSpec, reader: Reader, sample: DataSample) -> UnitMemory:
    """The memory of the largest unit. While it is decoded, the columns of the file take memory too."""
    if not isinstance(reader, UnitReader):
        return UnitMemory()
    described = reader.describe()
    unit = max(described.units, key=lambda unit: unit.samples)
    strings = sum(kind == "string" for kind in described.key_kinds.values()) / max(1, len(described.key_kinds))
    numbers = 4.0 * (described.num_dense + described.num_labels + bool(job.data.weight))
    lists = 8.0 * len(described.multi_valued)
    # Twice: while a unit is decoded, its pages take as much again, and malloc keeps what they took (measured: 2.4 times
    # with lists of ids).
    held = 2 * unit.samples * (numbers + 8 * sample.ids + lists)
    columns = unit.samples * (NUMBER_BYTES * described.num_dense + STRING_BYTES * strings * sample.ids)
    decoding = held + (reader.stored_bytes(unit) if job.data.format in ("csv", "criteo_tsv") else columns)
    return UnitMemory(int(held), int(decoding))
