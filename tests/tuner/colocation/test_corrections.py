"""Corrections for pairs of kinds: they are recovered, few windows change little, old windows are forgotten."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.colocation.corrections import (
    Corrections,
    PairCorrection,
    SpeedSample,
    SpeedSamples,
    fitted,
    learnt,
    log_corrections,
    table,
)
from tests.effort import examples

KINDS = ("dense", "embedding", "input")
TRUE = Corrections(
    (
        PairCorrection("dense", "dense", -0.1),
        PairCorrection("dense", "embedding", -0.4),
        PairCorrection("dense", "input", 0.0),
        PairCorrection("embedding", "embedding", -0.6),
        PairCorrection("embedding", "input", 0.1),
        PairCorrection("input", "input", -0.05),
    )
)


def met(count: int, noise: float = 0.0, at_s: float = 0.0) -> SpeedSamples:
    """Windows of random jobs beside 1 to 5 others."""
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(count):
        kinds = [str(kind) for kind in rng.choice(KINDS, rng.integers(2, 7))]
        log = float(log_corrections(TRUE, kinds)[0]) + noise * rng.standard_normal()
        seen.append(SpeedSample(kinds[0], tuple(kinds[1:]), log, at_s))
    return learnt(SpeedSamples(), seen)


def test_the_corrections_of_generated_windows_are_recovered() -> None:
    found = fitted(met(400, noise=0.05), 0.0)
    assert table(found, KINDS, KINDS) == pytest.approx(table(TRUE, KINDS, KINDS), abs=0.1)
    assert np.allclose(table(found, KINDS, KINDS), table(found, KINDS, KINDS).T)


def test_few_windows_change_little() -> None:
    one = learnt(SpeedSamples(), [SpeedSample("dense", ("input",), -1.0, 0.0)])
    assert fitted(one, 0.0).of("input", "dense") == pytest.approx(-1 / 9)
    assert fitted(SpeedSamples(), 0.0) == Corrections()


def test_old_windows_have_less_weight() -> None:
    seen = met(60)
    sizes = [abs(fitted(seen, now_s).of("embedding", "embedding")) for now_s in (0.0, 600.0, 3600.0, 36000.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1e-6


def test_windows_alone_and_invalid_windows_are_ignored_and_the_number_is_bounded() -> None:
    nothing = [SpeedSample("dense", (), -1.0, 0.0), SpeedSample("dense", ("dense",), -math.inf, 0.0)]
    assert learnt(SpeedSamples(), nothing).seen == ()
    seen = SpeedSamples()
    for at in range(60):
        seen = learnt(seen, [SpeedSample("dense", ("input",), 0.0, float(at))] * 10)
    assert len(seen.seen) == 512
    assert seen.seen[-1].at_s == 59.0


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS), st.floats(-20, 20)), max_size=30))
def test_corrections_are_bounded(seen: list[tuple[str, str, float]]) -> None:
    found = fitted(learnt(SpeedSamples(), [SpeedSample(one, (other,), log, 0.0) for one, other, log in seen]), 0.0)
    assert all(math.log(0.25) <= pair.log_correction <= math.log(1.5) for pair in found.pairs)
    assert all(pair.first <= pair.second for pair in found.pairs)


def test_a_job_is_corrected_by_the_mean_of_its_neighbours() -> None:
    found = log_corrections(TRUE, ["dense", "embedding", "input"])
    assert found == pytest.approx([(-0.4 + 0.0) / 2, (-0.4 + 0.1) / 2, (0.0 + 0.1) / 2])
    assert log_corrections(TRUE, ["embedding"] * 3) == pytest.approx([-0.6] * 3)
    assert log_corrections(TRUE, ["embedding"]).tolist() == [0.0]
    assert log_corrections(TRUE, ["unknown", "dense"]).tolist() == [0.0, 0.0]
    assert log_corrections(TRUE, []).shape == (0,)
