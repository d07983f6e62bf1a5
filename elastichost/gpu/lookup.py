"""The lookup of one embedding collection on a GPU: rows are read and updated by kernels, where they lie.

The rows lie in the arena, which the GPU reaches through registered memory, or in memory of the GPU; the kernels are the
same. As with direct access on the CPU, the optimizer is part of the backward pass, and other processes may read and
update the same rows at the same time (Hogwild).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.rows.bag_updates import OPTIMIZER_CODES
from elastichost.errors import ConfigError
from elastichost.gpu.bag_kernels import pool_bags
from elastichost.gpu.compiled import padded_width
from elastichost.gpu.dense_updates import flag_non_finite
from elastichost.gpu.row_placement import RowPlacement, optimizer_refusal
from elastichost.gpu.row_updates import TABLE_FIELDS, KeyFormat, LookupLists, update_rows
from elastichost.specs import EmbeddingSpec

__all__ = ["DeviceLookup"]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What calls with one batch size and one order of features share, on the device. entries int64 [E, 8]; firsts,
    stops int64 [E]: the first bag of each entry, and the one behind its last; embeddings int64 [E]."""

    entries: torch.Tensor
    firsts: torch.Tensor
    stops: torch.Tensor
    embeddings: torch.Tensor
    size: int
    width: int


class DeviceLookup:
    """The lookup of one collection of pooled embeddings with float32 rows. Raises ConfigError for an optimizer of rows
    that it does not have (`optimizer_refusal`).

    rate_scale: float32 [1] on the device, the factor of all learning rates. is_refused: int32 [1] on the device; the
    backward pass sets it to 1, and updates no row, when a gradient is not finite or when it is 1 already.
    """

    def __init__(
        self,
        embeddings: Sequence[EmbeddingSpec],
        placement: RowPlacement,
        rate_scale: torch.Tensor,
        is_refused: torch.Tensor,
        pooled_dtype: torch.dtype = torch.float32,
    ) -> None:
        for embedding in embeddings:
            if refusal := optimizer_refusal(embedding):
                raise ConfigError(
                    f"{refusal}, which a GPU cannot compute", hint="let the CPU update these rows, or choose adagrad"
                )
        self._embeddings = tuple(embeddings)
        self.placement, self.rate_scale, self.is_refused = placement, rate_scale, is_refused
        self._device, self.pooled_dtype = rate_scale.device, pooled_dtype
        self.kernel_width = padded_width(max(e.padded_dim for e in embeddings))
        self.tables = torch.zeros((len(self._embeddings), TABLE_FIELDS), dtype=torch.int64)
        for number, e in enumerate(self._embeddings):
            bases = placement.rows_offsets[number], placement.state_offsets[number]
            line = [bases[0], e.padded_dim, e.dim, bases[1], OPTIMIZER_CODES[e.optimizer.name]]
            self.tables[number] = torch.tensor(line)
        self.optimizers = frozenset(int(code) for code in self.tables[:, 4])
        self.tables = self.tables.to(self._device)
        rates = [(e.kernel_learning_rate, e.optimizer.eps) for e in self._embeddings]
        self.rates = torch.tensor(rates, dtype=torch.float32, device=self._device)
        self._scale = 1.0
        self._key_format = KeyFormat.of(len(self._embeddings), max(placement.row_counts))
        self.has_means = any(e.pooling == "mean" for e in embeddings)
        self._leaf = torch.zeros((), requires_grad=True, device=self._device)
        self._shapes: dict[tuple[int, tuple[str, ...]], _Shape] = {}
        self._lists: dict[int, LookupLists] = {}
        features = [feature for e in self._embeddings for feature in e.features]
        self._readers = max(features.count(feature) for feature in features)  # entries that read one feature, at most

    def set_learning_rate_scale(self, scale: float) -> None:
        """Sets the schedule's factor, which multiplies the learning rate of every table."""
        if scale != self._scale:
            self._scale = scale
            self.rate_scale.fill_(scale)

    def narrow_pooled(self) -> None:
        """Makes pooled vectors bfloat16 from now on."""
        self.pooled_dtype = torch.bfloat16

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Not offered: collections of single vectors are looked up on the CPU."""
        raise NotImplementedError(f"a lookup on a GPU of {len(features.keys())} features that are not pooled")

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """[batch, sum of dims] for features on the device. Values are row numbers, int32 or int64. The backward pass
        of this tensor updates rows and their state."""
        shape = self._shape_of(features)
        values, offsets = features.values(), features.offsets()
        output: torch.Tensor = _DeviceLookup.apply(self._leaf, self, shape, values, offsets)
        return output

    def lists_for(self, values: int) -> LookupLists:
        """The lists for a batch of so many values. They are kept, because a captured graph uses their memory; so sizes
        are rounded up by at most an eighth, and there are few of them however the number of values varies."""
        lookups = max(1, values * self._readers)
        step = 1 << max(0, lookups.bit_length() - 4)
        capacity = -(-lookups // step) * step
        known = self._lists.get(capacity)
        if known is None:
            known = self._lists[capacity] = LookupLists.allocate(
                capacity, self.kernel_width, self._device, self._key_format
            )
        return known

    def _shape_of(self, features: KeyedJaggedTensor) -> _Shape:
        key = features.stride(), tuple(features.keys())
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = self._make_shape(*key)
        return known

    def _make_shape(self, size: int, keys: tuple[str, ...]) -> _Shape:
        width = sum(e.dim * len(e.features) for e in self._embeddings)
        lines, owners, column = [], [], 0
        for number, e in enumerate(self._embeddings):
            for feature in e.features:
                first, base = keys.index(feature) * size, self.placement.rows_offsets[number]
                lines.append([first, size, base, e.dim, e.padded_dim, column, width, int(e.pooling == "mean")])
                owners.append(number)
                column += e.dim
        entries = torch.tensor(lines, dtype=torch.int64)
        first_bags = entries[:, 0].clone()
        parts = (entries, first_bags, first_bags + size, torch.tensor(owners, dtype=torch.int64))
        on_device = [part.to(self._device) for part in parts]
        return _Shape(on_device[0], on_device[1], on_device[2], on_device[3], size, width)


class _DeviceLookup(torch.autograd.Function):
    """The lookup as an autograd function. `leaf` requires a gradient only so that autograd calls `backward`."""

    @staticmethod
    def forward(
        context: Any,
        leaf: torch.Tensor,
        lookup: DeviceLookup,
        shape: _Shape,
        values: torch.Tensor,
        offsets: torch.Tensor,
    ) -> torch.Tensor:
        context.lookup, context.shape = lookup, shape
        context.save_for_backward(values, offsets)
        output = torch.empty((shape.size, shape.width), dtype=lookup.pooled_dtype, device=values.device)
        address = lookup.placement.rows_address
        pool_bags(address, shape.entries, values, offsets, output, shape.size, lookup.kernel_width)
        return output

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[None, ...]:
        lookup, shape = context.lookup, context.shape
        values, offsets = context.saved_tensors
        gradient = gradients[0].contiguous()
        flag_non_finite(gradient, lookup.is_refused)
        begins = offsets[shape.firsts].to(torch.int64)
        counts = offsets[shape.stops].to(torch.int64) - begins
        lists = lookup.lists_for(len(values))
        lists.fill(shape.entries, shape.embeddings, counts.cumsum(0) - counts, values, offsets, shape.size)
        place = lookup.placement.rows_address, lookup.placement.state_address
        settings = lookup.tables, lookup.rates, lookup.rate_scale, lookup.is_refused
        update_rows(*place, *settings, lists, gradient, lookup.optimizers, has_means=lookup.has_means)
        return None, None, None, None, None
