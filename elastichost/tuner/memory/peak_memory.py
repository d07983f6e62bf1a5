"""Estimates the peak memory of a job before it starts, as a sum of the parts that the code allocates. Pure.

    peak = max over moments of the sum of parts          moments: training, evaluation, checkpoint

A part of the arena (rows, state, ids, index, dense vector, pushes) never shrinks. The heap of a worker does not shrink
within a moment: blocks below `block_bytes` stay with the process when they are freed. A worker that scores returns its
free memory before and after (`worker.evaluation`), so its heap is

    heap = max(FRAGMENTATION * living(moment), living(moment) + UNFIT * largest(moment)) + hole(moment),
           of which the first part is at most MOST_FRAGMENTATION * living(moment)
         = 0                                       at a checkpoint, if there was an evaluation before

living(moment): largest sum, in bytes, of small tensors that exist at the same time; largest(moment): the largest of
them. Larger blocks have memory of their own, only at their moment; but malloc places one in a hole of the heap if it
fits there, and the small blocks that were in the hole before extend the heap. hole(moment): the largest such block. A
worker that scores nothing keeps the heap of training. A worker also keeps other buffers (`_worker`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from elastichost.arena.layout import SLOT_BYTES, plan_layout, rows_ahead
from elastichost.batches import scored_batch
from elastichost.gpu.memory.device_layout import DeviceLayout
from elastichost.host.machine import PAGE_BYTES
from elastichost.human_readable import mib
from elastichost.sharding import bucket_count
from elastichost.specs import TableSpec
from elastichost.tuner.memory.living_bytes import living_bytes
from elastichost.tuner.memory.peak_memory_facts import JobMemoryFacts
from elastichost.wire.facts import TensorEvent

__all__ = ["MemoryEstimate", "MemoryPart", "allocated_rows", "estimate_peak"]

Moment = Literal["training", "evaluation", "checkpoint"]
MOMENTS: tuple[Moment, ...] = ("training", "evaluation", "checkpoint")
WORDS: dict[Moment, str] = {
    "training": "during training",
    "evaluation": "during evaluation",
    "checkpoint": "at a checkpoint",
}

# Heap of a worker / living bytes. torch requests aligned blocks, and a freed block does not fit the next request of the
# same size. Measured after 60 steps: 1.8 to 2.7 for five models and batches of 1,024 to 32,768. Where two tensors are
# nearly all that lives, it is by chance 2.4 to 3.6: up to UNFIT places of their size that no request fits. They were
# chosen with 18 drawn jobs (`bench memory-estimate`, seeds 201 to 203) and two of co-location.
FRAGMENTATION, MOST_FRAGMENTATION = 2.1, 3.1
UNFIT = 4
GPU_ROUNDING = 1.25  # torch's allocator on a GPU takes whole segments (assumed)
BATCHES_DIRECT = 5  # three that wait, one that is being prepared, one in training
RING_BATCHES = 5.0  # of a reader: four places, each a quarter larger than a batch
BATCHES_SERVED = 4  # one that waits, one that is being pulled, one in training, one whose rows are being sent
# Slots of an index at the end of a run: 1.45 to 2 per id in the published index, the same number in an index under
# construction, and old indexes until no reader uses them.
SLOTS_PER_ID = 3.0
ID_BYTES = 12  # of a row of a dynamic table: its id, and the sample at which it was last seen
COPY_PIECE_BYTES, LEAST_COPY_PIECE_BYTES, COPY_PIECES = 64 << 20, 4 << 20, 8  # pieces of the memory reserved for copies
SUPERVISOR_VECTORS, SERVER_VECTORS = 5, 4  # copies of the dense vector, including a checkpoint's with optimizer state
SUMS = 2.25  # copies of the gradients of a batch's rows: two buffers, an eighth larger than needed
SERVER_FRAMES = 2  # copies of a batch's rows in a PS: one being sent, one being received
GUESSED_TENSORS = 3.0  # tensors per output of a layer: the output, its activation, its gradient
WORKSPACE_BYTES = 52  # per id of a batch, for the sums of the gradients of equal rows


class MemoryPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of the memory of a job, of all its processes together. gpu: on the GPUs, not on the host. arena: in
    shared memory, for which the file system of the arena must have room."""

    name: str
    bytes: int
    gpu: bool = False
    arena: bool = False


class MemoryEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The estimate for the moment at which a job needs most memory. worker_bytes: additional bytes of one more worker.
    limit_bytes: limit of a job with dynamic tables; 0: no limit. notes: sentences about uncertain parts."""

    moment: Moment
    parts: tuple[MemoryPart, ...]
    worker_bytes: int = 0
    limit_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def host_bytes(self) -> int:
        """Bytes of the arena and all processes on the host."""
        return self.limit_bytes if self._is_held else self.needed_bytes

    @property
    def arena_bytes(self) -> int:
        """The part of `host_bytes` that lies in shared memory."""
        return min(self.host_bytes, sum(part.bytes for part in self.parts if part.arena))

    @property
    def needed_bytes(self) -> int:
        """Bytes of the arena and all processes on the host if nothing limits the tables."""
        return sum(part.bytes for part in self.parts if not part.gpu)

    @property
    def _is_held(self) -> bool:
        return 0 < self.limit_bytes < self.needed_bytes

    @property
    def gpu_bytes(self) -> int:
        """Bytes on all GPUs together."""
        return sum(part.bytes for part in self.parts if part.gpu)

    def words(self) -> tuple[str, ...]:
        """The lines of the screen: the total, then the parts by falling size. Parts below a thousandth of the total are
        left out."""
        held = f", limited to {mib(self.limit_bytes)} by resources.memory" if self._is_held else ""
        on_gpus = f" and {mib(self.gpu_bytes)} on GPUs" if self.gpu_bytes else ""
        more = f"; {mib(self.worker_bytes)} for each further worker" if self.worker_bytes else ""
        least = max(1, self.needed_bytes + self.gpu_bytes) // 1000
        parts = [part for part in sorted(self.parts, key=lambda part: -part.bytes) if part.bytes > least]
        width = max((len(mib(part.bytes)) for part in parts), default=0)
        return (
            f"{mib(self.needed_bytes)}{on_gpus}, {WORDS[self.moment]}{held}{more}",
            *(f"  {mib(part.bytes):>{width}}  {part.name}" + " (GPU)" * part.gpu for part in parts),
            *self.notes,
        )


# --- the sum ----------------------------------------------------------------------------------------------------------


def estimate_peak(facts: JobMemoryFacts) -> MemoryEstimate:
    """Estimates the peak memory of a job. Raises ArenaFullError for a model that is too large for the address space."""
    found = _at_peak(facts)
    more = _at_peak(msgspec.structs.replace(facts, workers=facts.workers + 1))
    is_held = any(table.is_dynamic for table in facts.model.tables) and not facts.is_emulated
    return msgspec.structs.replace(
        found,
        worker_bytes=max(0, more.host_bytes - found.host_bytes),
        limit_bytes=facts.limit_bytes if is_held else 0,
        notes=facts.notes,
    )


def _at_peak(facts: JobMemoryFacts) -> MemoryEstimate:
    if facts.is_emulated:
        return MemoryEstimate("training", _processes(facts))
    lasting = (*_arena(facts), *_on_gpu(facts), *_worker(facts), *_processes(facts))
    estimates = [MemoryEstimate(moment, (*lasting, *_passing(facts, moment))) for moment in MOMENTS]
    largest = max(estimates, key=lambda estimate: estimate.host_bytes)
    parts = tuple(part for part in largest.parts if part.bytes > 0)
    return msgspec.structs.replace(largest, parts=parts)


def _part(name: str, size_bytes: float, *, gpu: bool = False, arena: bool = False) -> MemoryPart:
    return MemoryPart(name, math.ceil(size_bytes), gpu, arena)


def _processes(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    bases, (_, on_gpu) = facts.bases, _kinds(facts)
    return (
        _part("fork server", bases.fork_server),
        _part("supervisor", bases.supervisor + bases.tuner * facts.has_tuner + facts.score_bytes * facts.test_samples),
        _part("own metrics", facts.own_metrics_bytes),
        _part("own reader and model", _own_modules(facts)),
        _part("PS", facts.servers * (bases.server + bases.serving * _is_served(facts))),
        _part("readers", facts.workers * facts.readers * bases.reader),
        _part("workers", facts.workers * bases.worker + on_gpu * bases.gpu_host),
        _part("contexts", on_gpu * bases.gpu_context, gpu=True),
    )


def _own_modules(facts: JobMemoryFacts) -> int:
    """Bytes of the user's modules: the supervisor, workers and readers import the reader, and workers the model."""
    with_reader = 1 + facts.workers * (1 + facts.readers)
    return with_reader * facts.own_reader_bytes + facts.workers * facts.own_model_bytes


def _kinds(facts: JobMemoryFacts) -> tuple[int, int]:
    """The numbers of workers on the CPU and on GPUs."""
    on_gpu = min(facts.workers, facts.gpus)
    return facts.workers - on_gpu, on_gpu


def _scorers_of_kinds(facts: JobMemoryFacts) -> tuple[int, int]:
    """The workers on the CPU and on GPUs that score: those on the CPU first, because they take more of the host."""
    scorers = _scorers(facts)
    on_cpu = min(scorers, _kinds(facts)[0])
    return on_cpu, scorers - on_cpu


def _is_served(facts: JobMemoryFacts) -> bool:
    return facts.access == "served" and not facts.is_emulated


# --- the arena --------------------------------------------------------------------------------------------------------


def allocated_rows(rows: float, widest: int) -> int:
    """The number of allocated rows of a bucket with `rows` rows of a dynamic table. widest: elements of a row of its
    widest embedding."""
    allocated = 0
    while allocated < rows:
        allocated += rows_ahead(allocated, widest)
    return allocated


def _arena(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    model = facts.model
    layout = plan_layout(model, 0, facts.limit_bytes)
    rows = state = 0.0
    for e in model.embeddings:
        count = _places(facts, model.tables[e.table])
        rows += _pages(count * e.bytes_per_element * e.padded_dim)
        state += _pages(4 * count * e.state_floats_per_row)
    dynamic = [table for table in model.tables if table.is_dynamic]
    keys = sum(ID_BYTES * _places(facts, table) for table in dynamic)
    slots = sum(max(SLOTS_PER_ID * facts.ids[t.index], bucket_count(t) * PAGE_BYTES // SLOT_BYTES) for t in dynamic)
    pushes = 2.0 * facts.workers * layout.dense.mailbox_bytes if facts.access == "direct" else _staged(facts)
    return (
        _part("rows", rows, arena=True),
        _part("optimizer state", state, arena=True),
        _part("ids and their index", keys + SLOT_BYTES * slots, arena=True),
        _part("dense vector", layout.dense.mailbox_offset + layout.files.control, arena=True),
        _part("pushes", pushes, arena=True),
    )


def _on_gpu(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    """The model in memory of a GPU, beside the one in the arena."""
    if not facts.is_model_on_gpu:
        return ()
    layout = DeviceLayout.of(plan_layout(facts.model, 0, facts.limit_bytes))
    return (_part("rows and dense part", layout.size_bytes, gpu=True),)


def _pages(size_bytes: float) -> float:
    return math.ceil(size_bytes / PAGE_BYTES) * PAGE_BYTES


def _places(facts: JobMemoryFacts, table: TableSpec) -> float:
    """The number of allocated rows of a table, in all its buckets."""
    rows = facts.rows[table.index]
    if not table.is_dynamic:
        return rows
    widest = max((e.padded_dim for e in facts.model.embeddings_of(table.index)), default=4)
    buckets = bucket_count(table)
    return float(buckets * allocated_rows(rows / buckets, widest))


def _line_floats(facts: JobMemoryFacts) -> tuple[float, float]:
    """Numbers of floats of the distinct rows of a batch: (weights, optimizer state)."""
    per_table = facts.ids_per_batch
    lines = sum(per_table[e.table] * e.padded_dim for e in facts.model.embeddings)
    return lines, sum(per_table[e.table] * e.state_floats_per_row for e in facts.model.embeddings)


def _staged(facts: JobMemoryFacts) -> float:
    """Bytes of staged pushes: one of every worker (in sync mode one of every micro-batch), and the undo record of one
    application."""
    lines, states = _line_floats(facts)
    push = 8 * sum(facts.ids_per_batch) + 4 * lines
    return (facts.micro_batches or facts.workers) * push + push + 4 * states


# --- a worker ---------------------------------------------------------------------------------------------------------


def _scored(facts: JobMemoryFacts) -> int:
    """The largest number of samples that a worker scores at a time; slow models score fewer, for one second of work."""
    return min(scored_batch(facts.batch_size), facts.test_samples)


def _scorers(facts: JobMemoryFacts) -> int:
    """The number of workers that score batches of this size."""
    scored = _scored(facts)
    return min(facts.workers, -(-facts.test_samples // scored)) if scored else 0


def _events(facts: JobMemoryFacts) -> tuple[Sequence[TensorEvent], Sequence[TensorEvent]]:
    """The tensors of a training step and of a scoring; guessed from the dense part if they are not known."""
    if facts.working is not None:
        return facts.working.training, facts.working.scoring
    pooled = sum(e.dim * len(e.features) for e in facts.model.embeddings)
    layers = sum(tensor.shape[0] for tensor in facts.model.dense.tensors if len(tensor.shape) == 2)
    guess = (TensorEvent(0, True, 0.0, 4 * GUESSED_TENSORS * (pooled + layers)),)
    return guess, guess


def _worker(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    """The parts that all workers keep until they end, without their bases."""
    dense, workers = facts.model.dense, facts.workers
    replicas = 4 * (dense.elements + dense.parameters)
    _, on_gpu = _kinds(facts)
    of_gpu = 0.0
    if on_gpu:
        of_gpu = living_bytes(_events(facts)[0], facts.batch_size, 0)[2] * GPU_ROUNDING + replicas
    return (
        _part("dense replicas", workers * replicas),
        _part("activations and replicas", on_gpu * of_gpu, gpu=True),
        _part("batches read ahead", workers * _ahead(facts)),
        _part("rows of batches", workers * _row_buffers(facts)),
        _part("decoded data", workers * _decoded(facts)),
        _part("batches of readers", workers * facts.readers * RING_BATCHES * facts.batch_size * _batch_bytes(facts)),
    )


def _heaps(facts: JobMemoryFacts, moment: Moment) -> tuple[MemoryPart, ...]:
    """The heaps of all workers at a moment, without their bases: tensors, and batches that are scored."""
    workers, scorers = _kinds(facts), (0, 0) if moment == "training" else _scorers_of_kinds(facts)
    others = sum(
        (workers[on_gpu] - scorers[on_gpu]) * _heap(facts, "training", on_gpu=on_gpu) for on_gpu in (False, True)
    )
    scoring = sum(scorers[on_gpu] * _heap(facts, "evaluation", on_gpu=on_gpu) for on_gpu in (False, True))
    if moment == "checkpoint" or not any(scorers):
        return (_part("activations", others),)
    scored = sum(scorers) * _batch_bytes(facts) * _scored(facts)
    return _part("activations", scoring + others), _part("batches scored", scored)


def _heap(facts: JobMemoryFacts, moment: Moment, *, on_gpu: bool) -> float:
    """The heap of a worker of one kind at a moment."""
    samples = facts.batch_size if moment == "training" else _scored(facts)
    if on_gpu:  # the host has an output of a lookup, and its gradient
        return FRAGMENTATION * 8.0 * sum(e.dim * len(e.features) for e in facts.model.embeddings) * samples
    events = _events(facts)[moment == "evaluation"]
    sizes = [event.fixed_bytes + event.sample_bytes * samples for event in events if event.is_made]
    living = living_bytes(events, samples, facts.block_bytes)[0]
    largest = max((size for size in sizes if size < facts.block_bytes), default=0.0)
    heap = min(MOST_FRAGMENTATION * living, max(FRAGMENTATION * living, living + UNFIT * largest))
    return heap + max((size for size in sizes if facts.block_bytes <= size <= heap), default=0.0)


def _batch_bytes(facts: JobMemoryFacts) -> float:
    """Bytes per sample of a prepared batch: ids and their rows, lengths and offsets of bags, and other data."""
    return 16 * facts.sample_ids + 20 * facts.sample_features + facts.sample_bytes


def _ahead(facts: JobMemoryFacts) -> float:
    batches = BATCHES_DIRECT if facts.access == "direct" else BATCHES_SERVED
    return batches * facts.batch_size * _batch_bytes(facts)


def _row_buffers(facts: JobMemoryFacts) -> float:
    """Bytes of the workspace that sums gradients of equal rows. With served access also: the rows of the batches being
    processed, their sums, the frames in the PS, and copies of the dense vector."""
    workspace = WORKSPACE_BYTES * facts.sample_ids * facts.batch_size
    if facts.access == "direct":
        return workspace
    lines, _ = _line_floats(facts)
    return workspace + 4 * lines * (BATCHES_SERVED + SUMS + SERVER_FRAMES) + 4 * 5 * facts.model.dense.elements


def _decoded(facts: JobMemoryFacts) -> float:
    """Bytes of the units of a worker and its readers. The heap keeps the size that decoding needed."""
    units = (*[facts.train_unit] * (1 + facts.readers), facts.test_unit)
    return sum(max(unit.held_bytes, FRAGMENTATION * unit.decoding_bytes) for unit in units)


# --- parts of one moment ----------------------------------------------------------------------------------------------


def _passing(facts: JobMemoryFacts, moment: Moment) -> tuple[MemoryPart, ...]:
    training, scoring = _events(facts)
    if moment == "evaluation" and not facts.test_samples:
        return ()
    mapped = 0.0
    if moment == "training":
        mapped = _kinds(facts)[0] * living_bytes(training, facts.batch_size, facts.block_bytes)[1]
    elif moment == "evaluation":
        mapped = _scorers_of_kinds(facts)[0] * living_bytes(scoring, _scored(facts), facts.block_bytes)[1]
    copies = _copies(facts) if moment == "checkpoint" or facts.has_periodic_checkpoints else ()
    return (*_heaps(facts, moment), _part("activations, large ones", mapped), *copies)


def _copies(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    """The copies for a checkpoint. The memory for periodic checkpoints is reserved for all allocated rows, in pieces
    that the arrays do not fill completely."""
    size = ids = 0.0
    arrays = 1
    for table in facts.model.tables:
        is_reserved = facts.has_periodic_checkpoints
        rows = _places(facts, table) if is_reserved else facts.rows[table.index]
        embeddings = facts.model.embeddings_of(table.index)
        of_row = sum(e.bytes_per_element * e.padded_dim + 4 * e.state_floats_per_row for e in embeddings)
        size += rows * (of_row + ID_BYTES * (table.is_dynamic and is_reserved))
        ids += ID_BYTES * facts.rows[table.index] * table.is_dynamic
        arrays += bucket_count(table) * sum(1 + (e.state_floats_per_row > 0) for e in embeddings)
    if facts.has_periodic_checkpoints:
        size += facts.servers * _unfilled(size / facts.servers, arrays / facts.servers)
    vectors = 4 * facts.model.dense.elements * (SUPERVISOR_VECTORS + SERVER_VECTORS)
    return (_part("copies for checkpoints", size), _part("checkpoint: ids and dense part", ids + vectors))


def _unfilled(size: float, arrays: float) -> float:
    """Unused bytes of the memory that one PS reserved: the rest of the last piece, and half an array per piece."""
    piece = min(COPY_PIECE_BYTES, max(LEAST_COPY_PIECE_BYTES, size / COPY_PIECES))
    pieces = math.ceil(size / piece)
    return pieces * piece - size + pieces * size / arrays / 2
