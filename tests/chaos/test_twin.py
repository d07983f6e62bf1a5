"""Twin runs are equal in every bit; otherwise the check names where they differ."""

from __future__ import annotations

from elastichost.chaos.twin import Outcome, check_twins

PLAIN = Outcome((1.0, 0.5, 0.25), "abc", 0)


def test_the_same_bits_hold() -> None:
    assert check_twins(PLAIN, Outcome(PLAIN.losses, "abc", 3)).holds


def test_the_first_step_that_differs_is_named_and_another_model_is_found() -> None:
    verdict = check_twins(PLAIN, Outcome((1.0, 0.5000001, 0.3), "abd", 3))
    assert verdict.violations == (
        "step 2 has the loss 0.5000001 under kills, 0.5 undisturbed",
        "the exported models differ",
    )


def test_another_number_of_steps_is_found() -> None:
    assert check_twins(PLAIN, Outcome((1.0, 0.5), "abc", 1)).violations == ("2 steps under kills, 3 undisturbed",)


def test_without_a_kill_there_is_no_verdict() -> None:
    assert check_twins(PLAIN, Outcome(PLAIN.losses, "abc", 0)).holds is None
