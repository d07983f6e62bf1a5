"""Which kernel applies gradients of unique rows: by the embedding's optimizer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.kernels import adagrad_rows, rowwise_adagrad_rows, sgd_rows
from elastichost.specs import EmbeddingSpec

__all__ = ["apply_row_gradients"]

Float32 = npt.NDArray[np.float32]


def apply_row_gradients(
    embedding: EmbeddingSpec,
    weights: Float32,
    state: Float32 | None,
    rows: npt.NDArray[np.int64],
    gradients: Float32,
    learning_rate_scale: float,
) -> None:
    """Updates weights (float32 [:, padded_dim]) and state in place, as fbgemm's fused kernel would.

    rows int64 [n] are unique, gradients float32 [n, padded_dim]; the schedule's factor scales the learning rate.
    Raises ValueError when the optimizer needs state and there is none.
    """
    rate, eps = float(embedding.kernel_learning_rate * learning_rate_scale), float(embedding.optimizer.eps)
    if embedding.optimizer.name == "sgd":
        sgd_rows(weights, rows, gradients, rate)
        return
    if state is None:
        raise ValueError(f"embedding {embedding.name!r}: {embedding.optimizer.name} without optimizer state")
    update = adagrad_rows if embedding.optimizer.name == "adagrad" else rowwise_adagrad_rows
    update(weights, state, rows, gradients, rate, eps)
