"""Kernels over the flat dense vector: torch's optimizers, which read one half of the store and write the other, and
consistent reads.

The formulas are those of torch.optim's SGD, Adagrad and Adam. Symbols: p parameter, g gradient, lr `learning_rate`, wd
`weight_decay`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, full_fence, load_acquire

__all__ = ["adagrad_step", "adam_step", "copy_half", "sgd_step"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


@compiled
def sgd_step(
    old: Float32,
    new: Float32,
    old_state: Float32,
    new_state: Float32,
    gradient: Float32,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """SGD: g += wd * p; b = momentum * b + g; p -= lr * b. All arrays are float32 [parameters]. The state is b; with
    momentum 0 it is not read or written."""
    rate, keep, decay = np.float32(learning_rate), np.float32(momentum), np.float32(weight_decay)
    for i in range(len(gradient)):
        moved = gradient[i] + decay * old[i]
        if keep != np.float32(0.0):
            moved = keep * old_state[i] + moved
            new_state[i] = moved
        new[i] = old[i] - rate * moved


@compiled
def adagrad_step(
    old: Float32,
    new: Float32,
    old_state: Float32,
    new_state: Float32,
    gradient: Float32,
    learning_rate: float,
    eps: float,
    weight_decay: float,
) -> None:
    """Adagrad: g += wd * p; s += g^2; p -= lr * g / (sqrt(s) + eps). All arrays are float32 [parameters]; the state is
    s."""
    rate, tiny, decay = np.float32(learning_rate), np.float32(eps), np.float32(weight_decay)
    for i in range(len(gradient)):
        slope = gradient[i] + decay * old[i]
        total = old_state[i] + slope * slope
        new_state[i] = total
        new[i] = old[i] - rate * slope / (np.sqrt(total) + tiny)


@compiled
def adam_step(
    old: Float32,
    new: Float32,
    old_state: Float32,
    new_state: Float32,
    gradient: Float32,
    step: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> None:
    """Adam with bias correction. step: number of this step, from 1. The states are float32 [2 * parameters]: the first
    moments, then the second moments. The other arrays are float32 [parameters]."""
    count = len(gradient)
    correction1 = 1.0 - beta1**step
    correction2 = 1.0 - beta2**step
    rate = np.float32(learning_rate / correction1)
    root = np.float32(np.sqrt(correction2))
    keep1, keep2 = np.float32(beta1), np.float32(beta2)
    new1, new2 = np.float32(1.0 - beta1), np.float32(1.0 - beta2)
    tiny, decay = np.float32(eps), np.float32(weight_decay)
    for i in range(count):
        slope = gradient[i] + decay * old[i]
        first = keep1 * old_state[i] + new1 * slope
        second = keep2 * old_state[count + i] + new2 * slope * slope
        new_state[i] = first
        new_state[count + i] = second
        new[i] = old[i] - rate * first / (np.sqrt(second) / root + tiny)


@compiled
def copy_half(words: Int64, header: Int64, source: Float32, out: Float32, sequence: int) -> int:
    """Copies the half that was published as `sequence` into `out` (float32 [elements]).

    Returns the half's version, or -1 if the copy may be torn. words[1] is the sequence of the commit whose writing
    began last. Commit `sequence + 2` overwrites this half, so the copy is whole if words[1] is smaller after the copy.
    """
    version = load_acquire(header, 0)
    for i in range(len(out)):
        out[i] = source[i]
    full_fence()
    if load_acquire(words, 1) >= sequence + 2:
        return -1
    return version
