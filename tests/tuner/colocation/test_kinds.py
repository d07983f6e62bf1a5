"""Kinds of measured demands, and assumed demands of kinds."""

from __future__ import annotations

import pytest

from elastichost.tuner.colocation.facts import RESOURCES
from elastichost.tuner.colocation.kinds import KINDS, Kind, kind_of, prior_of


@pytest.mark.parametrize(
    ("row", "wait_share", "kind"),
    [
        ((0.4, 0.1, 0.0, 0, 0, 0), 0.0, "dense"),
        ((0.4, 0.1, 0.0, 0, 0, 0), 0.6, "input"),
        ((0.1, 0.05, 0.3, 0, 0, 0), 0.0, "input"),
        ((0.4, 0.4, 0.0, 0, 0, 0), 0.0, "embedding"),
        ((0.4, 0.3, 0.0, 0, 0, 0), 0.0, "balanced"),
        ((0.1, 0.3, 0.0, 0.8, 0.2, 0.1), 0.0, "dense"),
        ((0.1, 0.0, 0.0, 0.3, 0.1, 0.9), 0.0, "embedding"),
        ((0.0, 0.0, 0.0, 0, 0, 0), 0.0, "balanced"),
    ],
)
def test_kinds(row: tuple[float, ...], wait_share: float, kind: Kind) -> None:
    assert kind_of(row, wait_share) == kind


@pytest.mark.parametrize("is_gpu", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_assumed_demand_of_a_kind_is_of_that_kind(kind: Kind, is_gpu: bool) -> None:
    for cores in (1, 2, 16):
        prior = prior_of(kind, cores, 16, is_gpu)
        assert len(prior.demand) == len(RESOURCES)
        assert all(0 <= share <= 1 for share in prior.demand)
        assert kind_of(prior.demand, 0.8 if kind == "input" else 0.1) == kind
        assert "assumed" in prior.source
        assert (prior.demand[3] > 0) == is_gpu


def test_more_cores_have_more_demand_and_with_a_gpu_one_thread_counts() -> None:
    assert prior_of("dense", 4, 8).demand[0] == pytest.approx(4 * prior_of("dense", 1, 8).demand[0])
    assert prior_of("dense", 4, 8, is_gpu=True).demand == prior_of("dense", 1, 8, is_gpu=True).demand


def test_invalid_demands_and_cores_are_refused() -> None:
    with pytest.raises(ValueError, match="6 resources"):
        kind_of((0.1, 0.2))
    with pytest.raises(ValueError, match="cores=0 of host_cores=4"):
        prior_of("dense", 0, 4)
