"""The published model of DLRover-RM: it recovers its coefficients, and reports which directions are not determined."""

from __future__ import annotations

import numpy as np
import pytest

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.published.dlrover_rm import fit

WORKLOAD = Workload(512, "async", "served", dense_bytes=10**6, row_bytes=1664, bandwidth_bytes_per_s=1e9)
MIXED = [
    Configuration(*one) for one in ((1, 1), (4, 1, 2, 1), (8, 2, 1, 4), (16, 8, 4, 2), (2, 4, 8, 1), (32, 16), (3, 2))
]


def seconds(one: Configuration) -> float:
    """The iteration time with the coefficients 1e-4, 2e-3, 0.5, 1e-9 and the constant 4 ms."""
    m, w, p = WORKLOAD.batch_size, one.workers, one.servers
    compute, update = 1e-4 * m / one.worker_cores, 2e-3 * w / (p * one.server_cores)
    synchronise = 0.5 * (WORKLOAD.dense_bytes / p) / (WORKLOAD.bandwidth_bytes_per_s / w)
    return compute + update + synchronise + 1e-9 * m * WORKLOAD.row_bytes / p + 4e-3


def observed(tried: list[Configuration]) -> list[Observation]:
    return [Observation(one, one.workers * WORKLOAD.batch_size / seconds(one), 0.01) for one in tried]


def test_the_coefficients_are_recovered() -> None:
    fitted = fit(WORKLOAD, observed(MIXED))
    names = ("compute", "update", "synchronise", "lookup", "constant")
    assert fitted.parameters == pytest.approx(dict(zip(names, (1e-4, 2e-3, 0.5, 1e-9, 4e-3), strict=True)), rel=1e-3)
    assert (fitted.name, fitted.rank, fitted.parameters_total) == ("dlrover_rm", 5, 5)
    unseen = Configuration(24, 3, 2, 2)
    found = fitted.predict(as_array([unseen]))
    assert found.samples_per_s[0] == pytest.approx(24 * 512 / seconds(unseen), rel=1e-3)
    assert not found.is_extrapolated[0]


def test_rank_is_three_when_cores_never_change_and_two_when_only_workers_do() -> None:
    """Within one job the columns are 1 / cw, w / (p cp), w / p, 1 / p and 1."""
    same_cores = fit(WORKLOAD, observed([Configuration(w, p, 2, 2) for w in (1, 4, 16) for p in (1, 2, 8)]))
    assert same_cores.rank == 3
    only_workers = fit(WORKLOAD, observed([Configuration(w, 4, 2, 2) for w in (1, 2, 4, 8, 16)]))
    assert only_workers.rank == 2
    some = as_array([Configuration(12, 4, 2, 2), Configuration(12, 8, 2, 2), Configuration(12, 4, 4, 2)])
    assert list(only_workers.predict(some).is_extrapolated) == [False, True, True]
    # it still fits the observations exactly, so a good fit alone proves nothing
    seen = only_workers.predict(some[:1])
    assert seen.samples_per_s[0] == pytest.approx(12 * 512 / seconds(Configuration(12, 4, 2, 2)), rel=1e-3)


def test_in_sync_mode_each_worker_computes_its_part() -> None:
    workload = Workload(4096, "sync", "served")
    tried = [Configuration(w, p, c) for w in (1, 2, 8) for p in (1, 4) for c in (1, 2)]
    made = [Observation(one, 4096 / (1e-5 * 4096 / one.workers / one.worker_cores + 2e-3), 0.01) for one in tried]
    fitted = fit(workload, made)
    unseen = Configuration(16, 2, 4)
    expected = 4096 / (1e-5 * 4096 / 16 / 4 + 2e-3)
    assert fitted.predict(as_array([unseen])).samples_per_s[0] == pytest.approx(expected, rel=1e-3)


def test_unknown_sizes_do_not_change_predictions() -> None:
    bare = Workload(512)
    some = as_array(MIXED)
    first, second = fit(WORKLOAD, observed(MIXED)), fit(bare, observed(MIXED))
    np.testing.assert_allclose(first.predict(some).samples_per_s, second.predict(some).samples_per_s, rtol=1e-6)
