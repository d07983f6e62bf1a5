"""Turns a collection's lookup into one kernel call, and connects it to autograd's backward pass.

One kernel call handles embeddings of any dims, poolings and optimizers. It reads each feature at its place in the
KeyedJaggedTensor and writes the result at the place that the collection's output has for it, so no tensor is permuted,
concatenated or split.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.kernels import kernel_ready
from elastichost.arena.rows import bag_kernels as columns
from elastichost.specs import EmbeddingSpec
from elastichost.worker.model.gradient_check import NonFiniteGradientError, is_finite
from elastichost.worker.model.kernel_calls import flat_array, untraced

__all__ = ["NO_ROW", "BagCall", "BagPlan", "Pooled", "RowSource", "look_up_bags", "look_up_sequences"]

Pooled: TypeAlias = npt.NDArray[Any]  # float32, or uint16 for bfloat16
Int64Array = npt.NDArray[np.int64]

# The value, in a KeyedJaggedTensor, of an id of a sequence that has no row. With mixed access all other values below 0
# stand for pulled rows.
NO_ROW = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class BagCall:
    """One lookup: `entries`, `values`, `offsets` as `arena.rows.bag_kernels` defines them, and the output's shape and
    type: float32, or bfloat16, in which the gradient then comes back."""

    entries: Int64Array
    values: Int64Array
    offsets: Int64Array
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


class RowSource(Protocol):
    """The place where rows are read and their gradients are applied. Outputs and gradients are flat; they are float32,
    or bfloat16 as uint16 where the call says so."""

    def read(self, call: BagCall, output: Pooled) -> None: ...

    def apply_gradients(self, call: BagCall, gradient: Pooled) -> None: ...


class BagPlan:
    """The kernel entries of one collection: one per (embedding, feature), in the collection's order.

    sequence_features: those of the whole model; their values may contain NO_ROW. pooled_dtype: of pooled outputs; a
    caller may set it to bfloat16 if `may_narrow`.
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
        self.pooled_dtype = torch.float32
        self._keys: list[str] = []
        self._positions = np.zeros(0, np.int64)

    @property
    def may_narrow(self) -> bool:
        """Whether pooled outputs may be bfloat16, for which the kernels write whole vectors. Rows of fewer than 32
        elements gain nothing."""
        return bool((self._dims % 32 == 0).all())

    def entry_bounds(self) -> list[tuple[int, int]]:
        """Per embedding the range (first, stop) of its entries: entries[first:stop]."""
        bounds = itertools.accumulate((len(e.features) for e in self.embeddings), initial=0)
        return list(itertools.pairwise(bounds))

    def place(self, rows_offsets: Sequence[int]) -> None:
        """Sets where row 0 of each embedding begins, in elements of the flat rows."""
        repeats = [len(e.features) for e in self.embeddings]
        self._entries[:, columns.ROWS_OFFSET] = np.repeat(np.array(rows_offsets, np.int64), repeats)

    def pooled(self, features: KeyedJaggedTensor) -> BagCall:
        """The call for a pooled lookup; its output has shape [batch, sum of dims]."""
        size, width = features.stride(), int(self._dims.sum())
        entries = self._entries.copy()
        entries[:, columns.FIRST_BAG] = self._positions_in(features) * size
        entries[:, columns.BAGS] = size
        entries[:, columns.COLUMN] = np.cumsum(self._dims) - self._dims
        entries[:, columns.STRIDE] = width
        call = self._call(entries, _int64(features.values()), _int64(features.offsets()), (size, width))
        return dataclasses.replace(call, dtype=self.pooled_dtype)

    def sequence(self, features: KeyedJaggedTensor) -> tuple[BagCall, list[tuple[int, int]]]:
        """The call for a sequence lookup, as bags of one id. Its flat output holds one matrix per entry; the second
        result is the shape (ids, dim) of each."""
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
        """Builds the call. Ids without a row are removed from their bags. In a sequence the bag is then empty: the
        kernels write zeros for it and ignore its gradient."""
        if self._may_lack_rows and len(values) and values.min() == NO_ROW:
            has_row = values != NO_ROW
            kept = np.zeros(len(values) + 1, np.int64)
            np.cumsum(has_row, out=kept[1:])
            values, offsets = values[has_row], kept[offsets]
        return BagCall(entries, values, offsets, shape)

    def _positions_in(self, features: KeyedJaggedTensor) -> Int64Array:
        """The position of each entry's feature among the keys of the KeyedJaggedTensor."""
        keys = features.keys()
        if keys != self._keys:
            where = {key: position for position, key in enumerate(keys)}
            self._positions = np.array([where[feature] for feature in self._features], np.int64)
            self._keys = list(keys)
        return self._positions


def _int64(tensor: torch.Tensor) -> Int64Array:
    return kernel_ready(tensor.to("cpu", torch.int64).numpy())


class _LookUp(torch.autograd.Function):
    """The lookup as an autograd function. Rows are not tensors of the autograd graph; `leaf` requires a gradient only
    so that autograd calls `backward`, and receives none."""

    @staticmethod
    def forward(context: Any, leaf: torch.Tensor, call: BagCall, source: RowSource) -> torch.Tensor:
        context.call, context.source = call, source
        output = torch.empty(call.shape, dtype=call.dtype)
        source.read(call, flat_array(output))
        return output

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[None, None, None]:
        flat = gradients[0].to(context.call.dtype).contiguous()
        if not is_finite(flat):
            raise NonFiniteGradientError
        context.source.apply_gradients(context.call, flat_array(flat))
        return None, None, None


@untraced
def look_up_bags(
    plan: BagPlan, features: KeyedJaggedTensor, source: RowSource, leaf: torch.Tensor, device: torch.device
) -> torch.Tensor:
    """[batch, sum of dims] in the plan's type. In the backward pass the source applies its gradients, once per call."""
    output: torch.Tensor = _LookUp.apply(leaf, plan.pooled(features), source)  # type: ignore[no-untyped-call]
    return output.to(device)


@untraced
def look_up_sequences(
    plan: BagPlan, features: KeyedJaggedTensor, source: RowSource, leaf: torch.Tensor, device: torch.device
) -> list[torch.Tensor]:
    """Per (embedding, feature): float32 [ids, dim]. In the backward pass the source applies all their gradients
    together, once per call."""
    call, shapes = plan.sequence(features)
    flat: torch.Tensor = _LookUp.apply(leaf, call, source)  # type: ignore[no-untyped-call]
    parts = torch.split(flat.to(device), [count * dim for count, dim in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
