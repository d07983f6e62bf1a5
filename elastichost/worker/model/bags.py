"""How a collection's lookup becomes one kernel call, and how autograd comes back to it.

The kernels take embeddings of any dims, poolings and optimizers in one call, read the features where they lie in the
KeyedJaggedTensor, and write each where the collection wants it: nothing is permuted, concatenated or cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.kernels import kernel_ready
from elastichost.arena.rows import bag_kernels as columns
from elastichost.specs import EmbeddingSpec
from elastichost.worker.model.gradient_check import NonFiniteGradientError, is_finite

__all__ = ["NO_ROW", "BagCall", "BagPlan", "RowSource", "look_up_bags", "look_up_sequences"]

P = ParamSpec("P")
R = TypeVar("R")
Float32Array = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]

# The value, in a KeyedJaggedTensor, of an id of a sequence that has no row. Other numbers below 0 are pulled rows.
NO_ROW = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class BagCall:
    """One lookup: `entries`, `values` and `offsets` as `arena.bag_kernels` defines them, and the output's shape."""

    entries: Int64Array
    values: Int64Array
    offsets: Int64Array
    shape: tuple[int, ...]


class RowSource(Protocol):
    """Where rows are read and what becomes of their gradients. Outputs and gradients are float32, flat."""

    def read(self, call: BagCall, output: Float32Array) -> None: ...

    def apply_gradients(self, call: BagCall, gradient: Float32Array) -> None: ...


class BagPlan:
    """The kernel entries of one collection: one per (embedding, feature), in the collection's order.

    sequence_features: those of the whole model; among their values there may be NO_ROW.
    """

    def __init__(self, embeddings: Sequence[EmbeddingSpec], sequence_features: frozenset[str] = frozenset()) -> None:
        self.embeddings = tuple(embeddings)
        slots = [(e, feature) for e in self.embeddings for feature in e.features]
        self._features = [feature for _, feature in slots]
        self._may_lack_rows = any(e.kind == "sequence" or feature in sequence_features for e, feature in slots)
        self._dims = np.array([e.dim for e, _ in slots], np.int64)
        self._entries = np.zeros((len(slots), columns.ENTRY_FIELDS), np.int64)
        self._entries[:, columns.DIM] = self._dims
        self._entries[:, columns.PADDED_DIM] = [e.padded_dim for e, _ in slots]
        self._entries[:, columns.IS_MEAN] = [e.pooling == "mean" for e, _ in slots]
        self._keys: list[str] = []
        self._positions = np.zeros(0, np.int64)

    def entry_bounds(self) -> list[tuple[int, int]]:
        """Per embedding: its entries are entries[first:stop]."""
        bounds = itertools.accumulate((len(e.features) for e in self.embeddings), initial=0)
        return list(itertools.pairwise(bounds))

    def place(self, rows_offsets: Sequence[int]) -> None:
        """Says where each embedding's row 0 begins, in elements of the flat rows."""
        repeats = [len(e.features) for e in self.embeddings]
        self._entries[:, columns.ROWS_OFFSET] = np.repeat(np.array(rows_offsets, np.int64), repeats)

    def pooled(self, features: KeyedJaggedTensor) -> BagCall:
        """Shape [batch, sum of dims]."""
        size, width = features.stride(), int(self._dims.sum())
        entries = self._entries.copy()
        entries[:, columns.FIRST_BAG] = self._positions_in(features) * size
        entries[:, columns.BAGS] = size
        entries[:, columns.COLUMN] = np.cumsum(self._dims) - self._dims
        entries[:, columns.STRIDE] = width
        return self._call(entries, _int64(features.values()), _int64(features.offsets()), (size, width))

    def sequence(self, features: KeyedJaggedTensor) -> tuple[BagCall, list[tuple[int, int]]]:
        """Bags of one id: a call whose flat output holds one matrix per entry, and their shapes (ids, dim)."""
        lengths = np.array(features.length_per_key(), np.int64)
        positions = self._positions_in(features)
        counts = lengths[positions]
        entries = self._entries.copy()
        entries[:, columns.FIRST_BAG] = (np.cumsum(lengths) - lengths)[positions]
        entries[:, columns.BAGS] = counts
        sizes = counts * self._dims
        entries[:, columns.COLUMN] = np.cumsum(sizes) - sizes
        entries[:, columns.STRIDE] = self._dims
        values = _int64(features.values())
        call = self._call(entries, values, np.arange(len(values) + 1), (int(sizes.sum()),))
        return call, list(zip(counts.tolist(), self._dims.tolist(), strict=True))

    def _call(self, entries: Int64Array, values: Int64Array, offsets: Int64Array, shape: tuple[int, ...]) -> BagCall:
        """An id without a row leaves its bag. The bag of a place in a sequence is then empty: the kernels give zeros
        for it, and pass over its gradient."""
        if self._may_lack_rows and len(values) and values.min() == NO_ROW:
            has_row = values != NO_ROW
            kept = np.zeros(len(values) + 1, np.int64)
            np.cumsum(has_row, out=kept[1:])
            values, offsets = values[has_row], kept[offsets]
        return BagCall(entries, values, offsets, shape)

    def _positions_in(self, features: KeyedJaggedTensor) -> Int64Array:
        """Where each entry's feature stands among the keys."""
        keys = features.keys()
        if keys != self._keys:
            where = {key: position for position, key in enumerate(keys)}
            self._positions = np.array([where[feature] for feature in self._features], np.int64)
            self._keys = list(keys)
        return self._positions


def _int64(tensor: torch.Tensor) -> Int64Array:
    return kernel_ready(tensor.to("cpu", torch.int64).numpy())


class _LookUp(torch.autograd.Function):
    """`leaf` is there so that autograd calls `backward`: rows are no tensors of its graph, and it gets no gradient."""

    @staticmethod
    def forward(context: Any, leaf: torch.Tensor, call: BagCall, source: RowSource) -> torch.Tensor:
        context.call, context.source = call, source
        output = torch.empty(call.shape)
        source.read(call, output.view(-1).numpy())
        return output

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[None, None, None]:
        flat = gradients[0].to(torch.float32).contiguous().view(-1)
        if not is_finite(flat):
            raise NonFiniteGradientError
        context.source.apply_gradients(context.call, flat.numpy())
        return None, None, None


def _untraced(function: Callable[P, R]) -> Callable[P, R]:
    """A model under torch.compile is cut here: its tracer cannot look into kernels of another compiler."""
    return cast(Callable[P, R], torch.compiler.disable(function))  # type: ignore[no-untyped-call]


@_untraced
def look_up_bags(
    plan: BagPlan, features: KeyedJaggedTensor, source: RowSource, leaf: torch.Tensor, device: torch.device
) -> torch.Tensor:
    """float32 [batch, sum of dims]. When gradients reach it the source applies them; each call once per backward."""
    output: torch.Tensor = _LookUp.apply(leaf, plan.pooled(features), source)  # type: ignore[no-untyped-call]
    return output.to(device)


@_untraced
def look_up_sequences(
    plan: BagPlan, features: KeyedJaggedTensor, source: RowSource, leaf: torch.Tensor, device: torch.device
) -> list[torch.Tensor]:
    """Per (embedding, feature) float32 [ids, dim]. When gradients reach one of them the source applies those of all."""
    call, shapes = plan.sequence(features)
    flat: torch.Tensor = _LookUp.apply(leaf, call, source)  # type: ignore[no-untyped-call]
    parts = torch.split(flat.to(device), [count * dim for count, dim in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
