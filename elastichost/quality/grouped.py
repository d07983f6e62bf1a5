"""Metrics that rank the samples of each group, such as a user or a search: GAUC, NDCG at k, recall at k. Pure.

They are exact, in float64, without a loop over groups. Groups are the distinct values of `groups`; samples with
`has_group` False belong to none and are left out. Equal scores have no order: each metric is its mean over all orders
of them, as sklearn's `roc_auc_score` and `ndcg_score` compute it. A metric without any group to count is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["gauc", "ndcg_at", "recall_at"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def gauc(
    labels: npt.NDArray[np.floating],
    scores: npt.NDArray[np.floating],
    groups: Ints,
    has_group: Bools,
    weights: npt.NDArray[np.floating] | None = None,
) -> float:
    """The AUC of each group, averaged with the groups' numbers of samples as weights:
    sum_g n_g AUC_g / sum_g n_g (Zhu et al. 2017, "Optimized Cost per Click in Taobao Display Advertising"; Zhou et al.
    2018, "Deep Interest Network", section 6.2).

    All arrays have shape [n]; labels are 0 or 1. Groups whose samples have one class only are left out, as they have no
    AUC. With `weights`, n_g is the sum of the group's weights, and AUC_g is weighted as in `binary.auc`.
    """
    mass = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    blocks = _blocks(labels, scores, groups, has_group, mass)
    if blocks is None:
        return float("nan")
    positives = np.add.reduceat(blocks.positives, blocks.first_of_group)
    negatives = np.add.reduceat(blocks.negatives, blocks.first_of_group)
    # Blocks are in descending order of scores: of all negatives of a group, those at or above a block are subtracted.
    above = np.cumsum(blocks.negatives)
    before_group = np.concatenate(([0.0], above[blocks.first_of_group[1:] - 1]))
    below = (negatives + before_group)[blocks.group] - above + blocks.negatives / 2
    won = np.add.reduceat(blocks.positives * below, blocks.first_of_group)
    counts = (positives > 0) & (negatives > 0)
    if not counts.any():
        return float("nan")
    auc = won[counts] / (positives[counts] * negatives[counts])
    size = (positives + negatives)[counts]
    return float(auc @ size / size.sum())


def ndcg_at(
    depth: int, labels: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], groups: Ints, has_group: Bools
) -> float:
    """NDCG of the first `depth` samples of each group in descending order of scores, mean over the groups:
    DCG / ideal DCG with DCG = sum_{r=1..depth} y_r / log2(r + 1) (Järvelin and Kekäläinen 2002; for binary labels the
    gains y and 2^y - 1 are equal). Equal scores as in McSherry and Najork 2008.

    All arrays have shape [n]; labels are 0 or 1. Groups without a positive sample are left out. Every other group
    counts the same, and sample weights do not matter.
    """
    return _mean_in_first(depth, labels, scores, groups, has_group, discounts=True)


def recall_at(
    depth: int, labels: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], groups: Ints, has_group: Bools
) -> float:
    """The share of a group's positive samples that are among its first `depth` samples in descending order of scores,
    mean over the groups (Manning et al. 2008, "Introduction to Information Retrieval", section 8.4).

    All arrays have shape [n]; labels are 0 or 1. Groups without a positive sample are left out. Every other group
    counts the same, and sample weights do not matter.
    """
    return _mean_in_first(depth, labels, scores, groups, has_group, discounts=False)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Samples of one group with equal scores, as one block each, in order of groups and, within one, of descending
    scores. size: number of samples. rank: place of the first one in its group, from 0. group: number of its group,
    from 0. first_of_group: the first block of each group."""

    positives: Floats
    negatives: Floats
    size: Ints
    rank: Ints
    group: Ints
    first_of_group: Ints


def _blocks(
    labels: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], groups: Ints, has_group: Bools, mass: Floats
) -> _Blocks | None:
    """None: no sample has a group."""
    kept = np.flatnonzero(has_group)
    if kept.size == 0:
        return None
    order = kept[np.lexsort((-scores[kept], groups[kept]))]
    of_group, ordered = groups[order], scores[order]
    is_new_group = np.concatenate(([True], of_group[1:] != of_group[:-1]))
    starts = np.flatnonzero(is_new_group | np.concatenate(([True], ordered[1:] != ordered[:-1])))
    positive = np.asarray(labels, dtype=np.float64)[order] * mass[order]
    group = np.cumsum(is_new_group[starts]) - 1
    first_of_group = np.flatnonzero(is_new_group[starts])
    return _Blocks(
        positives=np.add.reduceat(positive, starts),
        negatives=np.add.reduceat(mass[order] - positive, starts),
        size=np.diff(np.append(starts, len(order))),
        rank=starts - starts[first_of_group][group],
        group=group,
        first_of_group=first_of_group,
    )


def _mean_in_first(
    depth: int,
    labels: npt.NDArray[np.floating],
    scores: npt.NDArray[np.floating],
    groups: Ints,
    has_group: Bools,
    *,
    discounts: bool,
) -> float:
    """The mean over groups of the discounted positives within the first `depth` places, over the most there may be.
    discounts: place r (from 1) counts 1 / log2(r + 1), and at most `depth` positives fit; else every place counts 1,
    and all positives are asked for."""
    blocks = _blocks(labels, scores, groups, has_group, np.ones(len(labels)))
    if blocks is None:
        return float("nan")
    deepest = min(depth, int(blocks.size.sum()))
    places = 1.0 / np.log2(np.arange(deepest) + 2.0) if discounts else np.ones(deepest)
    summed = np.concatenate(([0.0], np.cumsum(places)))  # summed[i]: of the first i places
    stop = np.minimum(blocks.rank + blocks.size, deepest)
    mean_place = (summed[stop] - summed[np.minimum(blocks.rank, deepest)]) / blocks.size
    found = np.add.reduceat(blocks.positives * mean_place, blocks.first_of_group)
    positives = np.add.reduceat(blocks.positives, blocks.first_of_group)
    best = summed[np.minimum(positives, deepest).astype(np.int64)] if discounts else positives
    counts = positives > 0
    return float((found[counts] / best[counts]).mean()) if counts.any() else float("nan")
