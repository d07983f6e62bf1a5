"""Checks that loss and gradients are finite before anything is updated with them."""

from __future__ import annotations

import torch

from elastichost.errors import NonFiniteError, SampleRange
from elastichost.worker.model.dense_vector import FlatDense

__all__ = ["NonFiniteGradientError", "backward", "is_finite", "leave_out"]


class NonFiniteGradientError(Exception):
    """Gradients of rows are not finite. Raised within a backward pass, before these rows are updated."""


def is_finite(values: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite. One sum decides; when it overflows, every element is checked."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def backward(loss: torch.Tensor, flat: FlatDense) -> str:
    """Computes the gradients. Returns a phrase that names what is not finite; "" when all gradients are finite."""
    try:
        with flat.backward_pass.running():
            loss.backward()  # type: ignore[no-untyped-call]
    except NonFiniteGradientError:
        return "a gradient of embedding rows is not finite"
    return "" if flat.has_finite_gradients else "a dense gradient is not finite"


def leave_out(what: str, samples: SampleRange, policy: str) -> None:
    """Logs that a batch is left out. Raises NonFiniteError unless `policy` (train.non_finite) is "skip"."""
    if policy != "skip":
        hint = 'lower the learning rates, or set train.non_finite = "skip"'
        raise NonFiniteError(f"{what} at {samples}", samples=samples, hint=hint)
    print(f"warning: {what} at {samples}: these samples are left out", flush=True)
