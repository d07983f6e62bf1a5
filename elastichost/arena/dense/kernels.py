"""Kernels over the flat dense vector: torch's optimizers, which read one half of the store and write the other, and
consistent reads.

The formulas are those of torch.optim's SGD, Adagrad, Adam and AdamW. Symbols: p parameter, g gradient, lr
`learning_rate`, wd `weight_decay`. Every step first multiplies the gradient by `clip`, the factor of `clip_factor`; it
is exactly 1 for a gradient that is not clipped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, full_fence, inlined, load_acquire
from elastichost.arena.rows.lanes import (
    add,
    divide,
    load,
    multiply,
    multiply_add,
    splat,
    square_root,
    store,
    subtract,
    zeros16,
)

__all__ = ["adagrad_step", "adam_step", "clip_factor", "copy_half", "sgd_step"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

LANES = 16
_NO_SEED = np.uint64(0)


@compiled
def clip_factor(gradient: Float32, clip_norm: float) -> float:
    """min(1, clip_norm / (|g| + 1e-6)) for the Euclidean norm |g| of a float32 gradient [parameters], as
    torch.nn.utils.clip_grad_norm_ computes it; the norm is summed in float64. clip_norm 0: 1, nothing is clipped."""
    if clip_norm == 0.0:
        return 1.0
    squares = 0.0
    for i in range(len(gradient)):
        value = np.float64(gradient[i])
        squares += value * value
    return float(min(1.0, clip_norm / (np.sqrt(squares) + 1e-6)))


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
    clip: float,
) -> None:
    """SGD: g += wd * p; b = momentum * b + g; p -= lr * b. All arrays are float32 [parameters]. The state is b; with
    momentum 0 it is not read or written."""
    rate, keep, decay = np.float32(learning_rate), np.float32(momentum), np.float32(weight_decay)
    factor = np.float32(clip)
    for i in range(len(gradient)):
        moved = factor * gradient[i] + decay * old[i]
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
    clip: float,
) -> None:
    """Adagrad: g += wd * p; s += g^2; p -= lr * g / (sqrt(s) + eps). All arrays are float32 [parameters]; the state is
    s."""
    rate, tiny, decay = np.float32(learning_rate), np.float32(eps), np.float32(weight_decay)
    factor = np.float32(clip)
    for i in range(len(gradient)):
        slope = factor * gradient[i] + decay * old[i]
        total = old_state[i] + slope * slope
        new_state[i] = total
        new[i] = old[i] - rate * slope / (np.sqrt(total) + tiny)


@inlined
def _adam_lanes(
    old: Float32,
    new: Float32,
    old_first: Float32,
    new_first: Float32,
    old_second: Float32,
    new_second: Float32,
    gradient: Float32,
    at: int,
    settings: Float32,
) -> None:
    """Adam for the sixteen parameters from `at` on. settings: (b1, 1 - b1, b2, 1 - b2, wd, lr / (1 - b1^t),
    sqrt(1 - b2^t), eps, shrink, clip) with t the number of the step. For Adam shrink is 1. For AdamW it is 1 - lr wd,
    and wd is 0 elsewhere.

    g = clip g + wd p;  p *= shrink;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
    p -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)
    """
    like = zeros16()
    value = load(old, at, like)
    pushed = multiply(splat(settings[9], like), load(gradient, at, like))
    slope = multiply_add(splat(settings[4], like), value, pushed)
    first = multiply_add(splat(settings[0], like), load(old_first, at, like), multiply(splat(settings[1], like), slope))
    square = multiply(multiply(splat(settings[3], like), slope), slope)
    second = multiply_add(splat(settings[2], like), load(old_second, at, like), square)
    root = add(divide(square_root(second), splat(settings[6], like)), splat(settings[7], like))
    store(new_first, at, first, _NO_SEED)
    store(new_second, at, second, _NO_SEED)
    kept = multiply(splat(settings[8], like), value)
    store(new, at, subtract(kept, divide(multiply(splat(settings[5], like), first), root)), _NO_SEED)


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
    is_decoupled: bool,
    clip: float,
) -> None:
    """Adam with bias correction (`_adam_lanes`). step: number of this step, from 1. is_decoupled: AdamW, whose weight
    decay does not enter the gradient (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization"). The states
    are float32 [2 * parameters]: the first moments, then the second moments. The other arrays are float32 [parameters].

    Written with explicit vectors: with so many arrays that might overlap, LLVM does not vectorise a loop.
    """
    count = len(gradient)
    root, rate = np.sqrt(1.0 - beta2**step), learning_rate / (1.0 - beta1**step)
    penalty = 0.0 if is_decoupled else weight_decay
    shrink = 1.0 - learning_rate * weight_decay if is_decoupled else 1.0
    exact = np.array([beta1, 1.0 - beta1, beta2, 1.0 - beta2, penalty, rate, root, eps, shrink, clip])
    settings = exact.astype(np.float32)
    old_first, old_second = old_state[:count], old_state[count : 2 * count]
    new_first, new_second = new_state[:count], new_state[count : 2 * count]
    whole = count // LANES * LANES
    for at in range(0, whole, LANES):
        _adam_lanes(old, new, old_first, new_first, old_second, new_second, gradient, at, settings)
    rest = count - whole
    if rest:  # the last parameters, which fill no vector, are computed in one of their own
        last = np.zeros((7, LANES), np.float32)
        last[0, :rest], last[6, :rest] = old[whole:], gradient[whole:]
        last[2, :rest], last[4, :rest] = old_first[whole:], old_second[whole:]
        _adam_lanes(last[0], last[1], last[2], last[3], last[4], last[5], last[6], 0, settings)
        new[whole:], new_first[whole:], new_second[whole:] = last[1, :rest], last[3, :rest], last[5, :rest]


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
