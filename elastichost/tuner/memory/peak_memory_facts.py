"""The input of the estimate of a job's peak memory, with measured constants. Pure values.

The base of a process is its memory without any data of the job: private pages of the interpreter and of libraries, most
of them copied from the fork server when they are first written. Bases were measured with torch 2.13 on Linux
(`benchmarks.memory_estimate.benchmark`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.specs import ModelSpec
from elastichost.wire.facts import WorkingSet

__all__ = ["ALONE", "BESIDE", "EMULATED", "EMULATED_BESIDE", "JobMemoryFacts", "ProcessBases", "UnitMemory"]


class ProcessBases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Private bytes of each process; for the fork server all its bytes.

    serving: additional bytes of a PS that serves rows. tuner: additional bytes of a supervisor from the first decision
    of its tuner on: state of the solvers, and pages of scipy that it writes. Measured: 6.6 MB in each of 4 runs beside
    others, 4 to 5 s after their starts, and 0.6 MB more in 5 s. reader: measured in four of them with generated data.
    gpu_host, gpu_context: additional bytes of a worker with a GPU, on the host, and on the GPU before it holds any
    data. Measured with three small models on an H100 (CUDA 13): 340 to 490 MB on the host, and a context of 520 MiB
    plus 290 MiB of kernels of libraries."""

    supervisor: int
    fork_server: int
    server: int
    worker: int
    serving: int = 8_000_000
    tuner: int = 7_000_000
    reader: int = 14_000_000
    gpu_host: int = 450_000_000
    gpu_context: int = 800 << 20


# ALONE: a job that is started alone. BESIDE: one of many jobs; their supervisors and fork servers are forked from a
# process that all jobs share. EMULATED, EMULATED_BESIDE: the same for emulated jobs, in which workers and PS compute
# nothing; the memory that their PS reserve for copies is included.
ALONE = ProcessBases(97_000_000, 357_000_000, 11_500_000, 29_000_000)
# Measured again for BESIDE when the modules that a supervisor imports had grown: with the constants of before, a job
# with tables of 1,000 rows was estimated 16 MB too low, of 95 MB.
BESIDE = ProcessBases(29_000_000, 16_500_000, 12_000_000, 29_000_000)
EMULATED = ProcessBases(88_000_000, 110_000_000, 15_500_000, 8_500_000)
EMULATED_BESIDE = ProcessBases(28_000_000, 10_000_000, 18_000_000, 11_500_000)


class UnitMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory of the largest decoded unit of a dataset. held_bytes: while batches are taken from it. decoding_bytes:
    largest value while it is read. Zeros: batches are made one by one."""

    held_bytes: int = 0
    decoding_bytes: int = 0


class JobMemoryFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the estimate of a job's peak memory depends on.

    rows, ids: by table, at the end of the run: rows that are kept, and ids in the index of a dynamic table.
    batch_size: of one worker. ids_per_batch: distinct ids of a batch by table. sample_ids: ids of a sample, in
    sample_features columns. sample_bytes: other bytes of a sample. test_samples: 0: no evaluation. score_bytes: of a
    test sample in the supervisor, while metrics are computed. own_metrics_bytes: the process that calls the user's
    metric functions; 0: there are none. own_reader_bytes, own_model_bytes: modules of the user's own reader and model,
    in each process that imports them; 0 for those of elastichost. gpus: each has one worker, and workers beyond their
    number are on the CPU. is_model_on_gpu: rows and dense part are in memory of the GPU too
    (`resources.model_memory`).
    micro_batches: of a step in sync mode, else 0. working: tensors of a training step and of scoring; None: not known,
    guessed from the dense part. block_bytes: size from which the allocator returns a freed block to the system.
    readers: of each worker.
    limit_bytes: `resources.memory`, which limits dynamic tables. notes: sentences about uncertain parts."""

    model: ModelSpec
    workers: int
    servers: int
    access: Literal["direct", "served"]
    batch_size: int
    rows: tuple[float, ...]
    ids: tuple[float, ...]
    ids_per_batch: tuple[float, ...]
    sample_ids: float
    sample_features: int
    sample_bytes: float
    limit_bytes: int
    block_bytes: int
    micro_batches: int = 0
    readers: int = 0
    test_samples: int = 0
    score_bytes: int = 90
    own_metrics_bytes: int = 0
    own_reader_bytes: int = 0
    own_model_bytes: int = 0
    test_unit: UnitMemory = UnitMemory()
    train_unit: UnitMemory = UnitMemory()
    has_periodic_checkpoints: bool = False
    gpus: int = 0
    is_model_on_gpu: bool = False
    has_tuner: bool = False
    is_emulated: bool = False
    working: WorkingSet | None = None
    bases: ProcessBases = ALONE
    notes: tuple[str, ...] = ()
