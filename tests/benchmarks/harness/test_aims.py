"""Aims have a bound and a direction."""

from __future__ import annotations

import pytest

from benchmarks.harness.aims import Aim, is_any_missed


@pytest.mark.parametrize(
    ("aim", "reached", "missed"), [(Aim("speed", 0.9, "at least"), 0.9, 0.89), (Aim("wait", 0.2, "at most"), 0.2, 0.21)]
)
def test_the_bound_itself_reaches_the_aim(aim: Aim, reached: float, missed: float) -> None:
    assert [aim.judge(value).is_met for value in (reached, missed, None)] == [True, False, None]
    assert [aim.judge(value).word for value in (reached, missed, None)] == ["reached", "not reached", "not measured"]


def test_an_aim_that_was_not_measured_is_not_missed() -> None:
    aim = Aim("speed", 0.9, "at least")
    assert not is_any_missed([aim.judge(None), aim.judge(1.0)])
    assert is_any_missed([aim.judge(None), aim.judge(0.5)])


def test_how_an_aim_is_shown() -> None:
    assert str(Aim("speed", 0.9, "at least")) == ">= 0.9"
    assert str(Aim("share", 0.01, "at most", form=".2%")) == "<= 1.00%"
    assert Aim("share", 0.01, "at most", form=".2%").judge(0.005).shown == "0.50%"
    assert Aim("speed", 0.9, "at least").judge(None).shown == "-"
    assert Aim("wait", 1.0, "at most", "worker").label == "worker: wait"


def test_a_verdict_for_programs() -> None:
    assert Aim("wait", 1.0, "at most", "worker").judge(2.0).to_json() == {
        "figure": "wait",
        "arm": "worker",
        "bound": 1.0,
        "direction": "at most",
        "value": 2.0,
        "reached": False,
    }
