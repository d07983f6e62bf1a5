"""Whether loss and gradients are numbers, looked at before anything is updated with them."""

from __future__ import annotations

import torch

from elastichost.errors import NonFiniteError, SampleRange
from elastichost.worker.model.dense_vector import FlatDense

__all__ = ["NonFiniteGradientError", "backward", "is_finite", "leave_out"]


class NonFiniteGradientError(Exception):
    """Raised within a backward pass, before rows are updated."""


def is_finite(values: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite: one sum, and a closer look where large numbers add up to too much."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def backward(loss: torch.Tensor, flat: FlatDense) -> str:
    """Computes the gradients. Returns what of them is not finite, in words; "" when they may be used."""
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    except NonFiniteGradientError:
        return "a gradient of rows is not finite"
    return "" if is_finite(flat.gradients) else "a dense gradient is not finite"


def leave_out(what: str, samples: SampleRange, policy: str) -> None:
    """Says in the log that a batch is not trained. Raises NonFiniteError unless `policy` (train.non_finite) is to skip
    such batches."""
    if policy != "skip":
        hint = 'lower the learning rates, or set train.non_finite = "skip"'
        raise NonFiniteError(f"{what} at {samples}", samples=samples, hint=hint)
    print(f"warning: {what} at {samples}: left out", flush=True)
