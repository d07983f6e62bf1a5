"""Sums of one stretch of training."""

from __future__ import annotations

from elastichost.tuner.input.facts import InputLook, InputTotals
from elastichost.tuner.input.window import WARM_UP_S, InputWindow, folded
from elastichost.wire.facts import InputKnobs


def look(at_s: float, totals: InputTotals, knobs: InputKnobs | None = None) -> InputLook:
    return InputLook(at_s, knobs or InputKnobs(), True, 1, totals, 1 << 20)


def test_sums_begin_after_the_warm_up_and_quantiles_are_the_newest() -> None:
    window = folded(InputWindow(), look(0.0, InputTotals(samples=1000)))
    window = folded(window, look(WARM_UP_S, InputTotals(samples=1000)))  # a part of it was in the warm-up
    early = InputTotals(samples=10, request_p50_s=0.9, request_p90_s=0.9, request_p99_s=0.9)  # of the one answer so far
    late = InputTotals(samples=20, request_p50_s=0.5, request_p90_s=0.8, request_p99_s=0.9)
    for number, totals in enumerate((early, late, InputTotals(samples=30)), 1):
        window = folded(window, look(WARM_UP_S + number, totals))
    assert (window.totals.samples, window.lasted_s, window.samples_per_s) == (60, 3.0, 20.0)
    found = window.totals.request_p50_s, window.totals.request_p90_s, window.totals.request_p99_s
    assert found == (0.5, 0.8, 0.9), "the last look had no request"


def test_other_knobs_and_a_disturbance_begin_it_anew() -> None:
    window = InputWindow()
    for second in range(3):
        window = folded(window, look(float(second), InputTotals(samples=10)))
    assert window.totals.samples == 10
    assert folded(window, look(3.0, InputTotals(samples=10), InputKnobs(connections=2))).totals.samples == 0
    unsteady = InputLook(3.0, InputKnobs(), False, 1, InputTotals(samples=10), 1 << 20)
    assert folded(window, unsteady).totals.samples == 0


def test_workers_are_summed_and_the_slowest_ones_quantiles_count() -> None:
    both = InputTotals(samples=1, request_p50_s=0.2, unit_bytes=7) + InputTotals(samples=2, request_p50_s=0.3)
    assert (both.samples, both.request_p50_s, both.unit_bytes) == (3, 0.3, 7)
