"""Recall at k of vectors: how many of the items that a user took are among the k with the largest product. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "recall_at"]

Floats = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]


def recall_at(k: int, users: Floats, items: Floats, taken_by: Int64Array, taken: Int64Array) -> float:
    """The mean over users of |top k items and taken items| / min(k, |taken items|).

    users: [U, D]; items: [I, D]; taken_by, taken: [n], places in `users` and `items`: this user took this item.
    Users who took nothing do not count. NaN if none took anything.
    """
    scores = users @ items.T
    top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    is_taken = np.zeros(scores.shape, dtype=bool)
    is_taken[taken_by, taken] = True
    counts = is_taken.sum(axis=1)
    found = np.take_along_axis(is_taken, top, axis=1).sum(axis=1)
    shares = found[counts > 0] / np.minimum(k, counts[counts > 0])
    return float(shares.mean()) if len(shares) else float("nan")
