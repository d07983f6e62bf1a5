"""Every round measures each arm once."""

from __future__ import annotations

import time

import pytest

from benchmarks.harness.interleave import ArmFailedError, Measurement, Rounds, interleave


def order_of(rounds: Rounds, arms: str = "abc") -> list[str]:
    """The arms of each round, in the order in which they were measured."""
    found = [""] * rounds.count
    for one in interleave({arm: lambda number: number for arm in arms}, rounds):
        assert one.found == one.round
        found[one.round] += one.arm
    return found


def test_rounds_alternate_their_direction() -> None:
    assert order_of(Rounds(3)) == ["abc", "cba", "abc"]


def test_shuffled_rounds_have_every_arm_and_are_the_same_for_the_same_seed() -> None:
    found = order_of(Rounds(20, is_shuffled=True, seed=3))
    assert {"".join(sorted(one)) for one in found} == {"abc"} and len(set(found)) > 3
    assert order_of(Rounds(20, is_shuffled=True, seed=3)) == found
    assert order_of(Rounds(20, is_shuffled=True, seed=4)) != found


def test_an_arm_that_fails_is_reported_and_left_out_of_later_rounds() -> None:
    def mortal(number: int) -> str:
        if number == 1:
            raise ArmFailedError("its last words")
        return "alive"

    found = list(interleave({"mortal": mortal, "other": lambda number: "alive"}, Rounds(3)))
    assert [one for one in found if one.found is None] == [Measurement("mortal", 1, None, "its last words")]
    assert [one.round for one in found if one.arm == "other"] == [0, 1, 2]
    assert [one.round for one in found if one.arm == "mortal"] == [0, 1]


def test_other_errors_end_the_benchmark() -> None:
    def broken(number: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(interleave({"broken": broken}, Rounds(2)))


def test_a_round_that_would_end_too_late_does_not_begin() -> None:
    found = list(interleave({"only": lambda number: number}, Rounds(5, deadline_s=time.monotonic() - 1, least=2)))
    assert [one.round for one in found] == [0, 1]
