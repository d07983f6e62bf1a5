"""The time that a change of a job costs, in both styles."""

from __future__ import annotations

import pytest

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.settings import SEAMLESS, STOP_AND_RESTART, move_cost, moved_share
from elastichost.tuner.facts import Configuration


def test_rows_move_when_ps_change_their_host() -> None:
    assert moved_share({0: (2, 2)}, {0: (2, 2), 1: (3, 0)}) == 0.0
    assert moved_share({0: (0, 2)}, {0: (0, 2), 1: (0, 2)}) == pytest.approx(0.5)
    assert moved_share({0: (0, 1)}, {1: (0, 1)}) == 1.0
    assert moved_share({0: (0, 2)}, {0: (0, 4)}) == 0.0, "on one host a hand-over moves no bytes"


def test_seamless() -> None:
    at = Configuration(4, 2)
    assert move_cost(SEAMLESS, at, Configuration(5, 2), 0.0) == (calibration.JOIN_S, calibration.PARTIAL_RATE)
    assert move_cost(SEAMLESS, at, Configuration(4, 3), 0.0)[0] == calibration.HANDOVER_S
    seconds, _ = move_cost(SEAMLESS, at, Configuration(6, 3), 2e9)
    assert seconds == pytest.approx(calibration.JOIN_S + calibration.HANDOVER_S + 2e9 / calibration.NETWORK_BYTES_PER_S)


def test_stop_and_restart() -> None:
    assert move_cost(STOP_AND_RESTART, Configuration(4, 2), Configuration(5, 2), 0.0) == (60.0, 0.0)
