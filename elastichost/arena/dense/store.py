"""The dense vector, kept twice ("halves"): a commit writes the idle half, then publishes it with one store.

Word 0 of the file `dense` is the sequence of the last published commit; half `sequence & 1` is the live one. Word 1 is
the sequence of the commit whose writing began last. The writer never changes the live half, so a kill at any point
leaves it whole: parameters, optimizer state and applied records always belong to the same commit.

A reader loads word 0, reads the live half, then loads word 1. If word 1 is less than `sequence + 2`, the writer has not
begun to overwrite that half, so the copy is consistent. Otherwise the reader tries again.
"""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.compiled import kernel_ready
from elastichost.arena.dense.kernels import adagrad_step, adam_step, clip_factor, copy_half, sgd_step
from elastichost.arena.dense.mailbox import Mailbox
from elastichost.arena.layout import APPLIED_WORDS, HEADER_WORDS
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaError
from elastichost.wire.facts import AppliedBatch, CommittedBatch

__all__ = ["DenseOptimizerSpec", "DenseState", "DenseStore"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

_PUBLISHED, _STARTED = 0, 1  # words of the first page
_VERSION, _STEP, _SAMPLES, _SKIPPED, _BATCHES = range(5)  # words of a half's header
_READ_TIMEOUT_S = 5.0


class DenseOptimizerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the dense optimizer, which is torch's optimizer of that name. weight_decay: L2 penalty, added to the
    gradient; for adamw the share, times the learning rate, by which parameters shrink. clip_norm: the largest Euclidean
    norm of the gradient of all parameters together, as torch.nn.utils.clip_grad_norm_ clips it; 0: no limit."""

    name: Literal["sgd", "adagrad", "adam", "adamw"] = "adam"
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    clip_norm: float = 0.0


class DenseState(NamedTuple):
    """A consistent copy of the dense part: vector float32 [elements], state float32 [2 * parameters]."""

    vector: Float32
    state: Float32
    version: int
    step: int
    samples_applied: int


class _Half:
    """Views of one of the two halves."""

    def __init__(self, arena: Arena, number: int) -> None:
        place, spec, file = arena.layout.dense, arena.model.dense, arena.files.dense
        offset = place.half_offsets[number]
        workers = arena.layout.max_workers
        self.header: Int64 = file.array(np.int64, offset, HEADER_WORDS)
        applied = file.array(np.int64, offset + place.applied_offset, workers * APPLIED_WORDS)
        self.applied: Int64 = applied.reshape(workers, APPLIED_WORDS)
        self.vector: Float32 = file.array(np.float32, offset + place.vector_offset, spec.elements)
        self.state: Float32 = file.array(np.float32, offset + place.state_offset, 2 * spec.parameters)
        self.parameters: Float32 = self.vector[: spec.parameters]


class DenseStore:
    """The flat dense vector of an arena. The dense owner is the only writer; any process may read."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._spec = arena.model.dense
        self._frozen = self._spec.frozen
        self._words: Int64 = arena.files.dense.array(np.int64, 0, HEADER_WORDS)
        self._halves = (_Half(arena, 0), _Half(arena, 1))
        self._mailboxes: dict[tuple[int, int], Mailbox] = {}

    # --- writer -----------------------------------------------------------------------------------------------

    def load(
        self,
        vector: Float32,
        state: Float32 | None,
        version: int,
        samples_applied: int,
        step: int,
        *,
        skipped: int = 0,
        applied_batches: int = 0,
    ) -> None:
        """Sets all values, initial ones or those of a checkpoint, and clears all applied records.

        vector: float32 [elements]. state: float32 [2 * parameters], or None for zeros. Raises ArenaError on other
        shapes.
        """
        self._require_elements("vector", vector, self._spec.elements)
        if state is not None:
            self._require_elements("optimizer state", state, 2 * self._spec.parameters)
        sequence, _, new = self._begin()
        new.vector[:] = vector
        new.state[:] = 0.0 if state is None else state
        new.applied[:] = 0
        new.header[:] = 0
        new.header[_VERSION], new.header[_STEP], new.header[_SAMPLES] = version, step, samples_applied
        new.header[_SKIPPED], new.header[_BATCHES] = skipped, applied_batches
        announce(self._words, _PUBLISHED, sequence)

    def apply_gradient(
        self,
        vector: Float32 | None,
        optimizer: DenseOptimizerSpec,
        learning_rate_scale: float,
        *,
        worker: int,
        incarnation: int,
        sequence: int,
        lease_id: int,
        stop: int,
        samples: int,
        skipped: int,
    ) -> int:
        """Commits one batch: an optimizer step and the worker's applied record, atomically. Returns the new version.

        vector: float32 [elements]; the gradients of the parameters, then the values of the buffers, which replace the
        old ones. None: the step was made in memory of a GPU, and vector and state here are older until `overwrite`.
        samples, skipped: counts of this batch, which are added to the incarnation's record and to the store's totals.
        Raises ArenaError on another shape or worker index.
        """
        if vector is not None:
            self._require_elements("pushed vector", vector, self._spec.elements)
        self._require_worker(worker)
        commit, old, new = self._begin()
        step = int(old.header[_STEP]) + 1
        if vector is not None:
            rate = optimizer.learning_rate * learning_rate_scale
            self._advance(old, new, kernel_ready(vector), optimizer, rate, step)
        before = self._record(old, worker, incarnation)
        new.applied[:] = old.applied
        new.applied[worker] = (
            incarnation,
            sequence,
            lease_id,
            stop,
            before.samples + samples,
            before.skipped + skipped,
        )
        new.header[:] = old.header
        new.header[_VERSION] += 1
        new.header[_STEP] = step
        new.header[_SAMPLES] += samples
        new.header[_SKIPPED] += skipped
        new.header[_BATCHES] += 1
        announce(self._words, _PUBLISHED, commit)
        return int(new.header[_VERSION])

    def overwrite(self, vector: Float32, state: Float32) -> None:
        """Replaces the vector, float32 [elements], and the optimizer state, float32 [2 * parameters], of the last
        commit. No commit is under way, and no process reads. Raises ArenaError on other shapes."""
        self._require_elements("vector", vector, self._spec.elements)
        self._require_elements("optimizer state", state, 2 * self._spec.parameters)
        half = self._live()
        half.vector[:], half.state[:] = vector, state

    def applied(self, worker: int, incarnation: int) -> AppliedBatch:
        """The last committed batch of this worker incarnation; zeros if there is none."""
        self._require_worker(worker)
        while True:
            sequence = load_word(self._words, _PUBLISHED)
            record = self._record(self._halves[sequence & 1], worker, incarnation)
            if load_word(self._words, _STARTED) < sequence + 2:  # the writer has not overwritten this half
                return record

    def committed(self) -> tuple[CommittedBatch, ...]:
        """The last committed batch of the newest incarnation of each worker that has committed one."""
        applied = self._live().applied
        return tuple(
            CommittedBatch(worker=int(worker), incarnation=int(applied[worker, 0]), sequence=int(applied[worker, 1]))
            for worker in np.flatnonzero(applied[:, 0])
        )

    def _record(self, half: _Half, worker: int, incarnation: int) -> AppliedBatch:
        words = [int(load_word(half.applied[worker], word)) for word in range(APPLIED_WORDS)]
        return AppliedBatch(*(words[1:] if words[0] == incarnation else [0] * (APPLIED_WORDS - 1)))

    def _begin(self) -> tuple[int, _Half, _Half]:
        """Begins a commit: (its sequence, the live half, the half to write)."""
        sequence = load_word(self._words, _PUBLISHED) + 1
        announce(self._words, _STARTED, sequence)
        return sequence, self._halves[(sequence - 1) & 1], self._halves[sequence & 1]

    def _advance(
        self, old: _Half, new: _Half, vector: Float32, optimizer: DenseOptimizerSpec, rate: float, step: int
    ) -> None:
        """Writes vector and state of the new half."""
        parameters = self._spec.parameters
        self._step(old, new, vector[:parameters], optimizer, rate, step)
        for first, end in self._frozen:
            new.vector[first:end] = old.vector[first:end]
        new.vector[parameters:] = vector[parameters:]

    def _step(
        self, old: _Half, new: _Half, gradient: Float32, optimizer: DenseOptimizerSpec, rate: float, step: int
    ) -> None:
        count, decay = self._spec.parameters, float(optimizer.weight_decay)
        place = (old.parameters, new.parameters)
        clip = clip_factor(gradient, float(optimizer.clip_norm))
        match optimizer.name:
            case "adam" | "adamw":
                betas = (float(optimizer.beta1), float(optimizer.beta2))
                factors = (*betas, float(optimizer.eps), decay)
                is_decoupled = optimizer.name == "adamw"
                adam_step(*place, old.state, new.state, gradient, step, rate, *factors, is_decoupled, clip)
            case "adagrad":
                states = (old.state[:count], new.state[:count])
                adagrad_step(*place, *states, gradient, rate, float(optimizer.eps), decay, clip)
            case "sgd":
                states = (old.state[:count], new.state[:count])
                sgd_step(*place, *states, gradient, rate, float(optimizer.momentum), decay, clip)

    # --- readers ----------------------------------------------------------------------------------------------

    def read_into(self, out: Float32) -> int:
        """Copies a consistent vector into out (float32 [elements]) and returns its version.

        Raises ArenaError on another shape, or when every attempt within 5 s was overtaken by two commits.
        """
        self._require_elements("out", out, self._spec.elements)
        deadline_s = time.monotonic() + _READ_TIMEOUT_S
        while True:
            sequence = load_word(self._words, _PUBLISHED)
            half = self._halves[sequence & 1]
            version = copy_half(self._words, half.header, half.vector, out, sequence)
            if version >= 0:
                return int(version)
            if time.monotonic() > deadline_s:
                raise ArenaError(
                    f"no consistent dense vector within {_READ_TIMEOUT_S} s: commits overwrite it faster than it can "
                    "be read",
                    hint="use larger batches or fewer workers",
                )

    def version(self) -> int:
        """Version of the live half, which grows by one with every commit."""
        return self._header_word(_VERSION)

    def step(self) -> int:
        """Number of optimizer steps that made the live half."""
        return self._header_word(_STEP)

    def samples_applied(self) -> int:
        """Samples of all committed batches since the job began."""
        return self._header_word(_SAMPLES)

    def skipped(self) -> int:
        """Samples of all committed batches that were skipped as bad rows."""
        return self._header_word(_SKIPPED)

    def applied_batches(self) -> int:
        """Batches committed since the job began."""
        return self._header_word(_BATCHES)

    def state_copy(self) -> DenseState:
        """A copy of the live half. The caller is the writer, or no commit is under way."""
        half = self._live()
        header = half.header
        return DenseState(
            half.vector.copy(), half.state.copy(), int(header[_VERSION]), int(header[_STEP]), int(header[_SAMPLES])
        )

    def mailbox(self, worker: int, half: int) -> Mailbox:
        """One half (0 or 1) of the mailbox in which a worker on this host leaves pushes.

        Raises ArenaFullError when there is no memory for it, and ArenaError on another half or worker index.
        """
        known = self._mailboxes.get((worker, half))
        if known is None:
            self._require_worker(worker)
            if half not in (0, 1):
                raise ArenaError(f"mailbox half {half} is out of range (0 to 1)")
            place, file = self._arena.layout.dense, self._arena.files.dense
            offset = place.mailbox_offset + (2 * worker + half) * place.mailbox_bytes
            file.allocate(offset, place.mailbox_bytes, f"the mailbox of worker {worker}")
            known = self._mailboxes[worker, half] = Mailbox(file, offset, self._spec.elements)
        return known

    def posted(self, worker: int, incarnation: int) -> tuple[bytes, ...]:
        """Messages of the pushes that this incarnation released and that are not committed, by ascending sequence."""
        committed = self.applied(worker, incarnation).sequence
        found = [posted for half in (0, 1) if (posted := self.mailbox(worker, half).posted(incarnation)) is not None]
        return tuple(message for sequence, message in sorted(found) if sequence > committed)

    def _live(self) -> _Half:
        return self._halves[load_word(self._words, _PUBLISHED) & 1]

    def _header_word(self, word: int) -> int:
        while True:
            sequence = load_word(self._words, _PUBLISHED)
            value = load_word(self._halves[sequence & 1].header, word)
            # The loop ends: it repeats only if two commits began between two loads.
            if load_word(self._words, _STARTED) < sequence + 2:
                return int(value)

    def _require_elements(self, what: str, array: Float32, elements: int) -> None:
        if array.shape != (elements,) or array.dtype != np.float32:
            raise ArenaError(f"the {what} is {array.dtype} {list(array.shape)}; it must be float32 [{elements}]")

    def _require_worker(self, worker: int) -> None:
        if not 0 <= worker < self._arena.layout.max_workers:
            raise ArenaError(f"worker {worker} is out of range (0 to {self._arena.layout.max_workers - 1})")
