"""Gradients of fused layers, which the worker's backward pass writes where they are needed.

torch adds a gradient to `parameter.grad`: it writes the product, reads it again, reads and writes the sum, and the sum
must have been zeroed. A large net spends a tenth of its step on these passes over memory. Here the first product of a
step is written straight to its place, as float32; only a second product, of a layer that is used twice, is added.

`weight.grad` stays None. What autograd itself finds for the weight comes there as a tensor of its own, and `complete`
adds it: where the user's model uses the weight outside of its layer, or differentiates within its forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elastichost.worker.model.dense_kernels import widen
from elastichost.worker.model.kernel_calls import flat_array

__all__ = ["BackwardPass", "WeightGradient"]


class BackwardPass:
    """Whether the worker's own backward pass runs, in which layers write their gradients themselves. In any other, such
    as a `torch.autograd.grad` of the user's model, they return them to autograd."""

    def __init__(self) -> None:
        self.is_running = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """While active, the worker's backward pass runs."""
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False


class WeightGradient:
    """The gradient of one weight in one step after another. start, stop: the weight's range in the flat dense
    vector."""

    def __init__(self, weight: torch.Tensor, start: int) -> None:
        self._weight = weight
        self.start, self.stop = start, start + weight.numel()
        self._place: torch.Tensor | None = None
        self._is_written = False
        self._total: float | None = None  # None: not yet known

    def begin(self, vector: torch.Tensor) -> None:
        """Begins a step. vector: float32 [at least `stop`], in which the range of the weight receives the gradient."""
        self._place = vector[self.start : self.stop]
        self._is_written, self._total = False, None
        self._weight.grad = None

    def add_product(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Adds left @ right, which has the shape of the weight. Both are float32, or both bfloat16."""
        assert self._place is not None, "a backward pass without `begin`"
        if self._is_written:
            self._add(left @ right)
        elif left.dtype == torch.float32:
            torch.mm(left, right, out=self._place.view(self._weight.shape))
        else:
            # the kernel that makes it float32 sums it as well
            self._total = float(widen(flat_array((left @ right).contiguous()), flat_array(self._place)))
        self._is_written = True

    def complete(self) -> float:
        """Ends the step: a weight that took no part has a gradient of zeros. Returns the sum of the gradient's
        elements: it is finite only if no element is NaN or infinite."""
        if self._place is None:
            return 0.0
        if not self._is_written:
            self._place.zero_()
            self._is_written, self._total = True, 0.0
        if self._weight.grad is not None:
            self._add(self._weight.grad.detach())
            self._weight.grad = None
        if self._total is None:
            self._total = float(self._place.sum())
        return self._total

    def _add(self, more: torch.Tensor) -> None:
        assert self._place is not None
        self._place.add_(more.reshape(-1))
        self._total = None
