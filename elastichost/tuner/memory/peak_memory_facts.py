"""What the peak memory of a job is told from, and the figures that were measured once. Pure values.

Bases are what processes take that hold next to nothing: private pages of interpreter and libraries, most of them copied
from the fork server when they are first written. Measured with torch 2.13 on Linux
(`benchmarks.memory_estimate.benchmark`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.specs import ModelSpec
from elastichost.wire.facts import WorkingSet

__all__ = ["ALONE", "BESIDE", "EMULATED", "EMULATED_BESIDE", "JobMemoryFacts", "ProcessBases", "UnitMemory"]


class ProcessBases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Private bytes of each process; of the fork server all that it has. serving: what a PS has more that serves rows.
    tuner: what a supervisor has more from its tuner's first decision on: solvers' state, and the pages of scipy that it
    writes; 6.6 MB in each of 4 runs beside others, 4 to 5 s after their starts, 0.6 MB more in 5 s.
    gpu_host, gpu_context: what a worker with a GPU has more on the host, and on the GPU before anything lies there. Of
    three small models on an H100 (CUDA 13): 340 to 490 MB, and a context of 520 MiB with 290 of libraries' kernels."""

    supervisor: int
    fork_server: int
    server: int
    worker: int
    serving: int = 8_000_000
    tuner: int = 7_000_000
    gpu_host: int = 450_000_000
    gpu_context: int = 800 << 20


# A job that is started by itself; one of many, whose supervisor and fork server are forked from a process that they
# share with the others; both where workers and PS compute nothing (with what their PS reserve for copies).
ALONE = ProcessBases(97_000_000, 357_000_000, 11_500_000, 29_000_000)
BESIDE = ProcessBases(22_000_000, 12_000_000, 10_500_000, 27_000_000)
EMULATED = ProcessBases(88_000_000, 110_000_000, 15_500_000, 8_500_000)
EMULATED_BESIDE = ProcessBases(28_000_000, 10_000_000, 18_000_000, 11_500_000)


class UnitMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one decoded unit, the largest: held_bytes while batches are cut from it, decoding_bytes at most while it is
    read. Zeros: batches are made one by one."""

    held_bytes: int = 0
    decoding_bytes: int = 0


class JobMemoryFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """rows, ids: by table, at the end of the run: that are kept, and that the index of a dynamic table holds.
    batch_size: of one worker; ids_per_batch: by table, distinct ones. sample_ids: ids of a sample, in sample_features
    columns; sample_bytes: of all else in one. test_samples: 0: none are scored. micro_batches: in sync mode, else 0.
    working: None: not known, and guessed from the dense part. block_bytes: from which size on a block of memory is
    given back when it is freed. limit_bytes: of `resources.memory`, which dynamic tables keep. notes: what is not known
    well, in words."""

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
    test_samples: int = 0
    test_unit: UnitMemory = UnitMemory()
    train_unit: UnitMemory = UnitMemory()
    has_periodic_checkpoints: bool = False
    has_gpus: bool = False
    has_tuner: bool = False
    is_emulated: bool = False
    working: WorkingSet | None = None
    bases: ProcessBases = ALONE
    notes: tuple[str, ...] = ()
