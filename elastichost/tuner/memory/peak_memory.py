"""The peak memory of a job before it starts, part by part: an account of what the code allocates. Pure.

    peak = max over moments of the sum of parts          moments: training, evaluation, checkpoint

A part of the arena (rows, state, ids, index, dense vector, pushes) never shrinks, and neither does a heap: blocks below
`block_bytes` stay with the process when they are freed. Larger ones are there at their moment only. So of a worker,
with living the largest sum of small tensors that are there at one time, and `larger` and `smaller` of the two

    heap = FRAGMENTATION * (living(training) + living(evaluation))    where scored batches are MUCH_LARGER than trained
         = FRAGMENTATION * living(larger) + living(smaller)           otherwise

and what else it keeps. What a training step maps beyond that is not there during an evaluation, nor either of them
during a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from elastichost.arena.layout import SLOT_BYTES, plan_layout, rows_ahead
from elastichost.host.machine import PAGE_BYTES
from elastichost.sharding import bucket_count
from elastichost.specs import TableSpec
from elastichost.tuner.memory.peak_memory_facts import JobMemoryFacts
from elastichost.wire.facts import TensorEvent

__all__ = ["MemoryEstimate", "MemoryPart", "allocated_rows", "estimate_peak", "living_bytes"]

Moment = Literal["training", "evaluation", "checkpoint"]
MOMENTS: tuple[Moment, ...] = ("training", "evaluation", "checkpoint")
WORDS: dict[Moment, str] = {
    "training": "while it trains",
    "evaluation": "while it is evaluated",
    "checkpoint": "at a checkpoint",
}

# Heap over living blocks: torch asks for aligned ones, and a block that is freed does not fit the next request of the
# same size. 1.8 to 2.7 over five models and batches of 1,024 to 32,768, after 60 steps (of one 3.8).
FRAGMENTATION = 2.3
# Times the batch that is trained, beyond which a scored one finds no hole that fits. At 4,096 after 512 a heap grew by
# 2.3 times what lives in a scoring, in the first two of them; at 4,096 after 2,048 by 1.2 times.
MUCH_LARGER = 2
GPU_ROUNDING = 1.25  # torch's own allocator on a GPU takes whole segments (assumed)
EVALUATION_BATCH = 4096  # at least, of scoring
BATCHES_DIRECT = 5  # three that wait, one that is being prepared, one in training
BATCHES_SERVED = 4  # one that waits, one being pulled, one in training, one whose rows are on their way
# Of an index, over its life at the end of a run: 1.45 to 2 published, as many under construction now and then, and
# outgrown ones until no reader can hold them.
SLOTS_PER_ID = 3.0
ID_BYTES = 12  # of a row of a dynamic table: its id and when it was seen
COPY_PIECE_BYTES, LEAST_COPY_PIECE_BYTES, COPY_PIECES = 64 << 20, 4 << 20, 8  # what is reserved for copies is cut so
SCORE_BYTES = 90  # of a test sample, in the supervisor: scores, labels, and float64 for the figures
SUPERVISOR_VECTORS, SERVER_VECTORS = 5, 4  # copies of the dense vector, a checkpoint's with optimizer state among them
SUMS = 2.25  # of the gradients of a batch's rows: two buffers, an eighth larger than needed
SERVER_FRAMES = 2  # of a batch's rows: one that leaves, one that comes
GUESSED_TENSORS = 3.0  # of a layer's output: itself, its activation, its gradient
WORKSPACE_BYTES = 52  # of an id of a batch: where the gradients of equal rows are found


class MemoryPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """name: in words. gpu: of the GPUs' memory; of all workers together."""

    name: str
    bytes: int
    gpu: bool = False


class MemoryEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the moment at which a job takes most. worker_bytes: what one more worker takes. limit_bytes: what its dynamic
    tables are held to, 0: nothing holds them; notes: what is not known well, in words."""

    moment: Moment
    parts: tuple[MemoryPart, ...]
    worker_bytes: int = 0
    limit_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def host_bytes(self) -> int:
        """Of the arena and all processes."""
        return self.limit_bytes if self._is_held else self._total_bytes

    @property
    def _total_bytes(self) -> int:
        return sum(part.bytes for part in self.parts if not part.gpu)

    @property
    def _is_held(self) -> bool:
        return 0 < self.limit_bytes < self._total_bytes

    @property
    def gpu_bytes(self) -> int:
        """Of all GPUs together."""
        return sum(part.bytes for part in self.parts if part.gpu)

    def words(self) -> tuple[str, ...]:
        """Lines: the total, then its parts by falling size; those below a thousandth of it are left out."""
        held = f", held to {_mb(self.limit_bytes)} by resources.memory" if self._is_held else ""
        on_gpus = f" and {_mb(self.gpu_bytes)} on GPUs" if self.gpu_bytes else ""
        more = f"; {_mb(self.worker_bytes)} for each worker more" if self.worker_bytes else ""
        least = max(1, self._total_bytes + self.gpu_bytes) // 1000
        parts = [part for part in sorted(self.parts, key=lambda part: -part.bytes) if part.bytes > least]
        width = max((len(_mb(part.bytes)) for part in parts), default=0)
        return (
            f"{_mb(self._total_bytes)}{on_gpus}, {WORDS[self.moment]}{held}{more}",
            *(f"  {_mb(part.bytes):>{width}}  {part.name}" + " (GPU)" * part.gpu for part in parts),
            *self.notes,
        )


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"


# --- the sum ----------------------------------------------------------------------------------------------------------


def estimate_peak(facts: JobMemoryFacts) -> MemoryEstimate:
    """Of a job in the size that the facts say. Raises ArenaFullError for a model that no address space holds."""
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
    lasting = (*_arena(facts), *_worker(facts), *_processes(facts))
    estimates = [MemoryEstimate(moment, (*lasting, *_passing(facts, moment))) for moment in MOMENTS]
    largest = max(estimates, key=lambda estimate: estimate.host_bytes)
    parts = tuple(part for part in largest.parts if part.bytes > 0)
    return msgspec.structs.replace(largest, parts=parts)


def _part(name: str, size_bytes: float, *, gpu: bool = False) -> MemoryPart:
    return MemoryPart(name, math.ceil(size_bytes), gpu)


def _processes(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    bases, on_gpu = facts.bases, facts.workers * facts.has_gpus
    return (
        _part("fork server", bases.fork_server),
        _part("supervisor", bases.supervisor + bases.tuner * facts.has_tuner + SCORE_BYTES * facts.test_samples),
        _part("PS", facts.servers * (bases.server + bases.serving * _is_served(facts))),
        _part("workers", facts.workers * bases.worker + on_gpu * bases.gpu_host),
        _part("contexts", on_gpu * bases.gpu_context, gpu=True),
    )


def _is_served(facts: JobMemoryFacts) -> bool:
    return facts.access == "served" and not facts.is_emulated


# --- the arena --------------------------------------------------------------------------------------------------------


def allocated_rows(rows: float, widest: int) -> int:
    """Of a bucket of a dynamic table that holds so many; widest: elements of a row of its widest embedding."""
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
        _part("rows", rows),
        _part("optimizer state", state),
        _part("ids and their index", keys + SLOT_BYTES * slots),
        _part("dense vector", layout.dense.mailbox_offset + layout.files.control),
        _part("pushes", pushes),
    )


def _pages(size_bytes: float) -> float:
    return math.ceil(size_bytes / PAGE_BYTES) * PAGE_BYTES


def _places(facts: JobMemoryFacts, table: TableSpec) -> float:
    """Rows of the table that take memory, in all its buckets."""
    rows = facts.rows[table.index]
    if not table.is_dynamic:
        return rows
    widest = max((e.padded_dim for e in facts.model.embeddings_of(table.index)), default=4)
    buckets = bucket_count(table)
    return float(buckets * allocated_rows(rows / buckets, widest))


def _line_floats(facts: JobMemoryFacts) -> tuple[float, float]:
    """(weights, optimizer state) of the distinct rows of a batch, in floats."""
    per_table = facts.ids_per_batch
    lines = sum(per_table[e.table] * e.padded_dim for e in facts.model.embeddings)
    return lines, sum(per_table[e.table] * e.state_floats_per_row for e in facts.model.embeddings)


def _staged(facts: JobMemoryFacts) -> float:
    """One waiting push of every worker, in sync mode of every micro-batch, and what one application changes."""
    lines, states = _line_floats(facts)
    push = 8 * sum(facts.ids_per_batch) + 4 * lines
    return (facts.micro_batches or facts.workers) * push + push + 4 * states


# --- a worker ---------------------------------------------------------------------------------------------------------


def living_bytes(events: Iterable[TensorEvent], samples: int, block_bytes: int) -> tuple[float, float, float]:
    """Most that lives at one time of tensors below block_bytes, of the others, and of all, of so many samples."""
    sizes: dict[int, float] = {}
    small = large = most_small = most_large = most = 0.0
    for event in events:
        if event.is_made:
            size = sizes[event.number] = event.fixed_bytes + event.sample_bytes * samples
        else:
            size = -sizes.pop(event.number, 0.0)
        if abs(size) < block_bytes:
            small += size
        else:
            large += size
        most_small, most_large, most = max(most_small, small), max(most_large, large), max(most, small + large)
    return most_small, most_large, most


def _scored(facts: JobMemoryFacts) -> int:
    """Samples that a worker scores at a time: no more than a second's work of it, so of a slow model fewer."""
    return min(max(EVALUATION_BATCH, facts.batch_size), facts.test_samples)


def _scorers(facts: JobMemoryFacts) -> int:
    """Workers that have so many."""
    scored = _scored(facts)
    return min(facts.workers, -(-facts.test_samples // scored)) if scored else 0


def _events(facts: JobMemoryFacts) -> tuple[Sequence[TensorEvent], Sequence[TensorEvent]]:
    """Of a training step and of a scoring."""
    if facts.working is not None:
        return facts.working.training, facts.working.scoring
    pooled = sum(e.dim * len(e.features) for e in facts.model.embeddings)
    layers = sum(tensor.shape[0] for tensor in facts.model.dense.tensors if len(tensor.shape) == 2)
    guess = (TensorEvent(0, True, 0.0, 4 * GUESSED_TENSORS * (pooled + layers)),)
    return guess, guess


def _worker(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    """What all workers keep for good, their bases apart."""
    dense, workers, scorers = facts.model.dense, facts.workers, _scorers(facts)
    training, scoring = _events(facts)
    batch, scored = facts.batch_size, _scored(facts)
    replicas = 4 * (dense.elements + dense.parameters)
    if facts.has_gpus:
        pooled = 8 * sum(e.dim * len(e.features) for e in facts.model.embeddings)  # an output, its gradient
        small, to_score = float(pooled * batch), float(pooled * scored)
        of_gpu = living_bytes(training, batch, 0)[2] * GPU_ROUNDING + replicas
    else:
        small, to_score = (living_bytes(e, n, facts.block_bytes)[0] for e, n in ((training, batch), (scoring, scored)))
        of_gpu = 0.0
    heaps = scorers * _heap(small, to_score, scored > MUCH_LARGER * batch) + (workers - scorers) * FRAGMENTATION * small
    return (
        _part("activations", heaps),
        _part("dense replicas", workers * replicas),
        _part("activations and replicas", workers * of_gpu, gpu=True),
        _part("batches read ahead", workers * _ahead(facts) + scorers * _batch_bytes(facts) * scored),
        _part("rows of batches", workers * _row_buffers(facts)),
        _part("decoded data", workers * _decoded(facts)),
    )


def _heap(training: float, scoring: float, has_other_sizes: bool) -> float:
    """Of a worker that trains and scores, by the most that lives of each. Blocks of other sizes fit into no hole that
    training has left: they have a heap of their own, with as many holes."""
    if has_other_sizes:
        return FRAGMENTATION * (training + scoring)
    return FRAGMENTATION * max(training, scoring) + min(training, scoring)


def _batch_bytes(facts: JobMemoryFacts) -> float:
    """Of a sample of a prepared batch: its ids and their rows, lengths and offsets of its bags, all else."""
    return 16 * facts.sample_ids + 20 * facts.sample_features + facts.sample_bytes


def _ahead(facts: JobMemoryFacts) -> float:
    batches = BATCHES_DIRECT if facts.access == "direct" else BATCHES_SERVED
    return batches * facts.batch_size * _batch_bytes(facts)


def _row_buffers(facts: JobMemoryFacts) -> float:
    """Where the gradients of equal rows are summed; with served access the rows of the batches under way, their sums,
    and what the PS have in hand of them; the dense vector travels, too."""
    workspace = WORKSPACE_BYTES * facts.sample_ids * facts.batch_size
    if facts.access == "direct":
        return workspace
    lines, _ = _line_floats(facts)
    return workspace + 4 * lines * (BATCHES_SERVED + SUMS + SERVER_FRAMES) + 4 * 5 * facts.model.dense.elements


def _decoded(facts: JobMemoryFacts) -> float:
    """Of the units of train and test data: a unit is read into many blocks, and its heap stays as it was then."""
    units = (facts.train_unit, facts.test_unit)
    return sum(max(unit.held_bytes, FRAGMENTATION * unit.decoding_bytes) for unit in units)


# --- what passes ------------------------------------------------------------------------------------------------------


def _passing(facts: JobMemoryFacts, moment: Moment) -> tuple[MemoryPart, ...]:
    training, scoring = _events(facts)
    if moment == "evaluation" and not facts.test_samples:
        return ()
    mapped = 0.0
    if not facts.has_gpus and moment == "training":
        mapped = facts.workers * living_bytes(training, facts.batch_size, facts.block_bytes)[1]
    elif not facts.has_gpus and moment == "evaluation":
        mapped = _scorers(facts) * living_bytes(scoring, _scored(facts), facts.block_bytes)[1]
    copies = _copies(facts) if moment == "checkpoint" or facts.has_periodic_checkpoints else ()
    return (_part("activations, large ones", mapped), *copies)


def _copies(facts: JobMemoryFacts) -> tuple[MemoryPart, ...]:
    """A periodic checkpoint's room is reserved, of allocated rows, in pieces that arrays do not fill to their ends."""
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
    """Of what one PS has reserved: the rest of the last piece, and half an array at the end of each."""
    piece = min(COPY_PIECE_BYTES, max(LEAST_COPY_PIECE_BYTES, size / COPY_PIECES))
    pieces = math.ceil(size / piece)
    return pieces * piece - size + pieces * size / arrays / 2
