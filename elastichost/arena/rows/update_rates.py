"""The numbers of each embedding's optimizer step, as kernels read them: float32 [embeddings, RATE_FIELDS]. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elastichost.specs import EmbeddingSpec

__all__ = ["DECAY", "EPS", "FIRST_SHARE", "RATE", "RATE_FIELDS", "SECOND_SHARE", "kernel_rates", "scaled_rates"]

Float32 = npt.NDArray[np.float32]

# Columns.
RATE = 0  # learning rate (`EmbeddingSpec.kernel_learning_rate`)
EPS = 1
DECAY = 2  # learning rate times weight decay: the share by which an updated row shrinks
FIRST_SHARE = 3  # 1 - beta1; the rest of the mean is beta1 of the old one
SECOND_SHARE = 4  # 1 - beta2. Both as differences: 1 - 0.999 in float32 would be wrong by 1e-5
RATE_FIELDS = 5


def kernel_rates(embeddings: Sequence[EmbeddingSpec]) -> Float32:
    """float32 [embeddings, RATE_FIELDS], with the learning rates of the job file."""
    optimizers = [(e, e.optimizer) for e in embeddings]
    rates = [
        (e.kernel_learning_rate, o.eps, o.learning_rate * o.weight_decay, 1.0 - o.beta1, 1.0 - o.beta2)
        for e, o in optimizers
    ]
    return np.array(rates, np.float32).reshape(-1, RATE_FIELDS)


def scaled_rates(rates: Float32, scale: float) -> Float32:
    """A copy of `rates` with the factor of the schedule: it multiplies learning rates, and with them weight decay."""
    scaled = rates.copy()
    scaled[:, RATE] *= np.float32(scale)
    scaled[:, DECAY] *= np.float32(scale)
    return scaled
