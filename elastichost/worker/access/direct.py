"""Direct access: reads rows from the mapped arena and updates them in place during the backward pass.

The optimizer is fused into the backward pass. It takes no lock against other workers, so two workers may update a row
at the same time and one may read a row that another has half updated (Hogwild, Niu et al. 2011). A kill within the
backward pass leaves some rows of the batch updated: the batch is torn, and the watermark (`note_begun`, stored before
the first row changes) is how the supervisor finds that.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.arena import Arena
from elastichost.arena.kernels import initial_stream, mix64, pool_bags
from elastichost.arena.layout import ArenaLayout
from elastichost.arena.rows import bag_updates as columns
from elastichost.arena.rows.bag_chains import UpdateWorkspace
from elastichost.arena.rows.bag_updates import update_rows
from elastichost.arena.rows.update_rates import kernel_rates, scaled_rates
from elastichost.specs import EmbeddingSpec
from elastichost.worker.model.bags import BagCall, BagPlan, Pooled, look_up_bags, look_up_sequences

__all__ = ["DirectLookup"]

Float32Array = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Part:
    """The embeddings of one precision, which one kernel call handles: their entries, and how they are updated."""

    rows: Float32Array | npt.NDArray[np.uint16]
    entries: Int64Array
    updates: Int64Array
    rates: Float32Array  # [embeddings, RATE_FIELDS], without the factor of the schedule


def _part(
    rows: Float32Array | npt.NDArray[np.uint16],
    members: Sequence[EmbeddingSpec],
    bounds: Sequence[tuple[int, int]],
    layout: ArenaLayout,
) -> _Part:
    """Builds the part of these members. bounds: the range of each member's entries among the collection's entries."""
    updates = np.zeros((len(members), columns.UPDATE_FIELDS), np.int64)
    stops = list(itertools.accumulate(stop - start for start, stop in bounds))
    updates[:, columns.FIRST_ENTRY] = [0, *stops[:-1]]
    updates[:, columns.STOP_ENTRY] = stops
    updates[:, columns.STATE_OFFSET] = [max(0, layout.state_offset(e.index)) for e in members]
    updates[:, columns.OPTIMIZER] = [columns.OPTIMIZER_CODES[e.optimizer.name] for e in members]
    entries = np.concatenate([np.arange(start, stop) for start, stop in bounds])
    return _Part(rows, entries, updates, kernel_rates(members))


class DirectLookup:
    """The lookup of one collection in the arena. Key values are row numbers in the row space of their table."""

    def __init__(self, arena: Arena, embeddings: Sequence[EmbeddingSpec], device: torch.device) -> None:
        layout = arena.layout
        self._plan = BagPlan(embeddings, arena.model.sequence_features)
        self._plan.place([layout.rows_offset(e.index) for e in embeddings])
        self._state = arena.state_flat
        self._parts: list[_Part] = []
        for precision, rows in (("float32", arena.rows_flat), ("bfloat16", arena.rows_flat_half)):
            chosen = [number for number, e in enumerate(embeddings) if e.precision == precision]
            if chosen:
                bounds = self._plan.entry_bounds()
                members = [embeddings[number] for number in chosen]
                self._parts.append(_part(rows, members, [bounds[number] for number in chosen], layout))
        self._rates = [part.rates for part in self._parts]
        self._workspace = UpdateWorkspace(max(e.padded_dim for e in embeddings))
        self._stream = initial_stream(layout.seed, "rounding of rows")
        self._updates_made = 0
        self._leaf = torch.zeros((), requires_grad=True)
        self._device = device

    def set_learning_rate_scale(self, scale: float) -> None:
        """Sets the schedule's factor, which multiplies the learning rate of every table."""
        self._rates = [scaled_rates(part.rates, scale) for part in self._parts]

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """[batch, sum of dims], float32 or bfloat16. The backward pass of this tensor updates rows and their state."""
        return look_up_bags(self._plan, features, self, self._leaf, self._device)

    def narrow_pooled(self) -> None:
        """Makes pooled vectors bfloat16 from now on, if the widths of the rows permit it and are worth it."""
        if self._plan.may_narrow and self._device.type == "cpu":
            self._plan.pooled_dtype = torch.bfloat16

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Per (embedding, feature): float32 [ids, dim]. Their backward pass updates rows and optimizer state."""
        return look_up_sequences(self._plan, features, self, self._leaf, self._device)

    def read(self, call: BagCall, output: Pooled) -> None:
        """Implements `RowSource.read`."""
        for part in self._parts:
            pool_bags(part.rows, call.entries[part.entries], call.values, call.offsets, output)

    def apply_gradients(self, call: BagCall, gradient: Pooled) -> None:
        """Implements `RowSource.apply_gradients`: sums the gradients of equal rows and updates each row once."""
        self._workspace.reserve(len(call.values))
        self._updates_made += 1
        seed = np.uint64(mix64(self._stream ^ np.uint64(self._updates_made)))
        for part, rates in zip(self._parts, self._rates, strict=True):
            update_rows(
                part.rows,
                self._state,
                call.entries[part.entries],
                part.updates,
                rates,
                call.values,
                call.offsets,
                gradient,
                *self._workspace.arrays(),
                seed,
            )
