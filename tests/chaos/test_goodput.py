"""Goodput: the throughput under faults as a share of the throughput without faults."""

from __future__ import annotations

import pytest

from elastichost.chaos.goodput import SETTLE_S, Goodput


def test_half_the_speed_under_faults_is_a_goodput_of_one_half() -> None:
    goodput, now_s, samples = Goodput(), 0.0, 0
    for quiet, rate, steps in ((True, 100, 300), (False, 50, 600)):
        for _ in range(steps):
            now_s, samples = now_s + 0.1, samples + rate
            goodput.take(now_s, samples, is_quiet=quiet)
    assert goodput.share == pytest.approx(0.5, rel=0.01)
    assert goodput.lost_s_per_fault(10) == pytest.approx(3.0, rel=0.02)
    assert goodput.at_one_fault_in(60.0, 10) == pytest.approx(0.95, abs=0.002)


def test_the_time_after_a_change_is_neither_calm_nor_faulty() -> None:
    goodput = Goodput()
    goodput.take(0.0, 0, is_quiet=True)
    goodput.take(SETTLE_S / 2, 1_000_000, is_quiet=True)
    assert goodput.calm_rate is None
    assert goodput.faulty_rate is None


def test_samples_that_a_resumed_run_lost_are_subtracted() -> None:
    goodput = Goodput()
    goodput.take(0.0, 0, is_quiet=False)
    goodput.take(1.0, 1000, is_quiet=False)
    goodput.take(2.0, 400, is_quiet=False)
    assert goodput.faulty_rate == pytest.approx(200)


def test_goodput_is_not_known_without_both_rates() -> None:
    goodput = Goodput()
    goodput.take(0.0, 0, is_quiet=False)
    goodput.take(1.0, 10, is_quiet=False)
    assert goodput.share is None
    assert goodput.at_one_fault_in(60.0, 1) is None
