"""The tensors of one batch as a step on a GPU reads them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

__all__ = ["StepInputs"]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs of one batch, all on one device.

    values: int32 or int64 [capacity], row numbers; those behind the last offset are not read. offsets: int32 or int64
    [features * size + 1]. dense: float32 [size, n]. labels: float32 [size, labels]. weights: float32 [size] or None.
    """

    values: torch.Tensor
    offsets: torch.Tensor
    dense: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor | None = None

    @property
    def size(self) -> int:
        return len(self.labels)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        every = (self.values, self.offsets, self.dense, self.labels, self.weights)
        return tuple(one for one in every if one is not None)

    def copy_from(self, other: StepInputs) -> None:
        """Copies another batch into this one, in the order of the current stream. Its shape is the same, but it may
        have room for fewer values."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine[: len(theirs)].copy_(theirs, non_blocking=True)

    def empty_like(self, device: torch.device, *, pinned: bool = False) -> StepInputs:
        """Inputs of the same shape and types, zeros. pinned: in page-locked memory of the host."""

        def empty(one: torch.Tensor | None) -> torch.Tensor | None:
            return None if one is None else torch.zeros(one.shape, dtype=one.dtype, device=device, pin_memory=pinned)

        return StepInputs(**{field.name: empty(getattr(self, field.name)) for field in dataclasses.fields(self)})  # type: ignore[arg-type]
