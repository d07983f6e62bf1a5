"""The grouped metrics against sklearn, one group after the other, and against a plain implementation with ties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.quality.binary import auc
from elastichost.quality.grouped import gauc, ndcg_at, recall_at

Floats = npt.NDArray[np.float64]
# label, score, group (None: no group), weight: few distinct scores, so that there are ties
SAMPLES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([-1.5, 0.0, 0.25, 2.0]),
        st.sampled_from([None, -7, 0, 2**62]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=24,
)
Sample = tuple[int, float, int | None, int]


def arrays(
    samples: list[Sample],
) -> tuple[Floats, npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.bool_], Floats]:
    labels, scores, groups, weights = zip(*samples, strict=True)
    ids = np.array([group or 0 for group in groups], dtype=np.int64)
    has_group = np.array([group is not None for group in groups])
    return np.array(labels, float), np.array(scores, np.float32), ids, has_group, np.array(weights, float)


def of_groups(samples: list[Sample]) -> list[list[Sample]]:
    names = {group for _, _, group, _ in samples if group is not None}
    return [[sample for sample in samples if sample[2] == name] for name in sorted(names)]


def mean_over_orders(depth: int, members: list[Sample], gain_of_rank: list[float]) -> float:
    """The mean gain of the first `depth` places over all orders of samples with equal scores: each sample's expected
    place is uniform over the places of its score."""
    ordered = sorted(members, key=lambda sample: -sample[1])
    total, place = 0.0, 0
    for _, tied in itertools.groupby(ordered, key=lambda sample: sample[1]):
        block = list(tied)
        places = range(place, place + len(block))
        gain = sum(gain_of_rank[rank] for rank in places if rank < depth) / len(block)
        total += gain * sum(label for label, *_ in block)
        place += len(block)
    return total


@given(SAMPLES)
def test_gauc_is_the_mean_auc_of_the_groups_by_their_sizes(samples: list[Sample]) -> None:
    labels, scores, groups, has_group, weights = arrays(samples)
    for mass in (None, weights):
        found = []
        for members in of_groups(samples):
            own = arrays(members)
            value = auc(own[0], own[1], None if mass is None else own[4])
            if not math.isnan(value):
                found.append((value, float(len(members)) if mass is None else own[4].sum()))
        expected = sum(a * n for a, n in found) / sum(n for _, n in found) if found else math.nan
        np.testing.assert_allclose(gauc(labels, scores, groups, has_group, mass), expected, atol=1e-12)


@given(SAMPLES, st.integers(1, 8))
def test_ndcg_and_recall_of_groups_with_ties(samples: list[Sample], depth: int) -> None:
    labels, scores, groups, has_group, _ = arrays(samples)
    discount = [1 / math.log2(rank + 2) for rank in range(30)]
    ndcgs, recalls = [], []
    for members in of_groups(samples):
        positives = sum(label for label, *_ in members)
        if positives:
            ideal = sum(discount[: min(depth, positives)])
            ndcgs.append(mean_over_orders(depth, members, discount) / ideal)
            recalls.append(mean_over_orders(depth, members, [1.0] * 30) / positives)
    np.testing.assert_allclose(
        ndcg_at(depth, labels, scores, groups, has_group), np.mean(ndcgs) if ndcgs else math.nan, atol=1e-12
    )
    np.testing.assert_allclose(
        recall_at(depth, labels, scores, groups, has_group), np.mean(recalls) if recalls else math.nan, atol=1e-12
    )


def test_as_sklearn_computes_them() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(3)
    count = 3000
    groups = random.integers(-40, 40, count)
    labels = (random.random(count) < 0.2).astype(np.float32)
    scores = np.round(random.normal(size=count) + labels, 1).astype(np.float32)
    weights = random.random(count)
    everyone = np.ones(count, dtype=bool)
    aucs, sizes, ndcgs = [], [], []
    for group in np.unique(groups):
        own = groups == group
        if 0 < labels[own].sum() < own.sum():
            aucs.append(metrics.roc_auc_score(labels[own], scores[own], sample_weight=weights[own]))
            sizes.append(weights[own].sum())
        if labels[own].any():
            ndcgs.append(metrics.ndcg_score(labels[own][None], scores[own][None], k=10))
    expected = np.average(aucs, weights=sizes)
    np.testing.assert_allclose(gauc(labels, scores, groups, everyone, weights), expected, rtol=1e-9)
    np.testing.assert_allclose(ndcg_at(10, labels, scores, groups, everyone), np.mean(ndcgs), rtol=1e-9)


def test_without_a_group_to_count_they_are_not_defined() -> None:
    labels, scores = np.array([1.0, 0.0]), np.array([0.5, 0.25], np.float32)
    nobody = np.zeros(2, dtype=bool)
    groups = np.array([1, 2])
    assert math.isnan(gauc(labels, scores, groups, nobody))
    assert math.isnan(gauc(labels, scores, groups, ~nobody))  # each group has one class only
    assert math.isnan(recall_at(1, np.zeros(2), scores, groups, ~nobody))
    assert ndcg_at(3, labels, scores, groups, ~nobody) == 1.0
