"""The gradient of a bfloat16 layer's weight, which one kernel writes where it is needed.

torch adds a gradient to `parameter.grad`: it writes the product, reads it again, reads and writes the sum, and the sum
must have been zeroed. A large net spends a tenth of its step on these passes over memory. Here the first product of a
step is written straight to its place, as float32; only a second product, of a layer that is used twice, is added.

`parameter.grad` stays None. What autograd itself finds for the weight, where the user's model uses it outside of its
layer, comes there as a tensor of its own, and `complete` adds it.
"""

from __future__ import annotations

import math

import torch

from elastichost.worker.model.dense_kernels import widen
from elastichost.worker.model.kernel_calls import flat_array

__all__ = ["WeightGradient"]


class WeightGradient:
    """The gradient of one weight in one step after another. start, stop: the weight's range in the flat dense
    vector."""

    def __init__(self, weight: torch.Tensor, start: int) -> None:
        self._weight = weight
        self.start, self.stop = start, start + weight.numel()
        self._place: torch.Tensor | None = None
        self._is_written = False
        self._total = 0.0

    def begin(self, vector: torch.Tensor) -> None:
        """Begins a step. vector: float32 [at least `stop`], in which the range of the weight receives the gradient."""
        self._place = vector[self.start : self.stop]
        self._is_written, self._total = False, 0.0
        self._weight.grad = None

    def add(self, product: torch.Tensor) -> None:
        """Adds a contribution, bfloat16 in the shape of the weight."""
        assert self._place is not None, "a backward pass without `begin`"
        if self._is_written:
            self._add(product.view(-1))
            return
        self._total = float(widen(flat_array(product.contiguous()), flat_array(self._place)))
        self._is_written = True

    def complete(self) -> float:
        """Ends the step: a weight that took no part has a gradient of zeros. Returns the sum of the gradient's
        elements: it is finite only if no element is NaN or infinite."""
        if self._place is not None and not self._is_written:
            self._place.zero_()
            self._is_written = True
        if self._weight.grad is not None:
            self._add(self._weight.grad.view(-1))
            self._weight.grad = None
        return self._total

    def _add(self, more: torch.Tensor) -> None:
        assert self._place is not None
        self._place.add_(more)
        self._total = float(self._place.sum()) if math.isfinite(self._total) else self._total
