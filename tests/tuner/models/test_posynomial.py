"""Derivatives of products, sums and smooth maxima agree with finite differences; limiting cases are correct."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.tuner.models.posynomial import Quantity, Tape, largest

COLUMN = np.array([0.5, 1.0, 3.0, 20.0])
Leaves = list[Quantity]


def gradients(made_of: Callable[[Tape, Leaves], Quantity], at: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Exact derivatives and central differences, float64 [leaves, rows] each."""

    def value(logs: list[float]) -> tuple[Tape, Quantity]:
        tape = Tape()
        return tape, made_of(tape, [tape.leaf(log) for log in logs])

    tape, quantity = value(at)
    exact = tape.gradients(quantity, len(at), len(COLUMN))
    numeric, step = np.zeros_like(exact), 1e-6
    for place in range(len(at)):
        up, down = list(at), list(at)
        up[place] += step
        down[place] -= step
        numeric[place] = (value(up)[1].log - value(down)[1].log) / (2 * step)
    return exact, numeric


def everything(tape: Tape, leaves: Leaves) -> Quantity:
    a, b, c, q, g = leaves
    column = tape.constant(COLUMN)
    share, rest = tape.share(q)
    sharpness = tape.between(g, 1.0, 10.0)
    inner = largest([a * column + b, share * c / column, rest * c], sharpness)
    return inner * a + largest([inner, b * b * column], tape.constant(6.0)) / (c + column)


logs = st.floats(-4.0, 4.0)


@given(st.lists(logs, min_size=5, max_size=5))
def test_derivatives_agree_with_finite_differences(at: list[float]) -> None:
    exact, numeric = gradients(everything, at)
    np.testing.assert_allclose(exact, numeric, atol=2e-6, rtol=2e-6)


@given(logs, logs)
def test_values_agree_with_arithmetic(log_a: float, log_b: float) -> None:
    tape = Tape()
    a, b = tape.leaf(log_a), tape.leaf(log_b)
    column = tape.constant(COLUMN)
    x, y = math.exp(log_a), math.exp(log_b)
    np.testing.assert_allclose(np.exp((a * column + b / column).log), x * COLUMN + y / COLUMN)
    for g in (1.0, 2.5, 10.0):
        found = largest([a * column, b], tape.constant(g))
        np.testing.assert_allclose(np.exp(found.log), ((x * COLUMN) ** g + y**g) ** (1 / g), rtol=1e-9)


@given(logs)
def test_shares_add_up_and_bounds_hold(logit: float) -> None:
    tape = Tape()
    leaf = tape.leaf(logit)
    share, rest = tape.share(leaf)
    assert math.exp(share.log) + math.exp(rest.log) == pytest.approx(1.0)
    assert 1.0 < math.exp(tape.between(leaf, 1.0, 10.0).log) < 10.0


def test_the_smooth_maximum_is_the_sum_and_the_maximum_at_its_ends() -> None:
    tape = Tape()
    terms = [tape.leaf(math.log(3.0)), tape.leaf(math.log(5.0))]
    assert math.exp(largest(terms, tape.constant(1.0)).log) == pytest.approx(8.0)
    assert math.exp(largest(terms, tape.constant(200.0)).log) == pytest.approx(5.0)


def test_zero_is_a_term_without_weight() -> None:
    def with_zero(tape: Tape, leaves: Leaves) -> Quantity:
        nothing = tape.constant(np.zeros(len(COLUMN)))
        return largest([leaves[0], leaves[1] * nothing], tape.between(leaves[2], 1.0, 10.0)) + nothing * leaves[1]

    exact, numeric = gradients(with_zero, [0.3, 0.2, 0.1])
    np.testing.assert_allclose(exact, numeric, atol=1e-8)
    np.testing.assert_allclose(exact, [[1.0] * 4, [0.0] * 4, [0.0] * 4], atol=1e-12)


def test_constants_have_no_derivatives() -> None:
    tape = Tape()
    leaf = tape.leaf(1.0)
    column = tape.constant(COLUMN)
    assert (column * column + column).index == column.index  # constants are not stored on the tape
    np.testing.assert_array_equal(tape.gradients(column * column, 1, len(COLUMN)), np.zeros((1, 4)))
    np.testing.assert_array_equal(tape.gradients(leaf, 1, len(COLUMN)), np.ones((1, 4)))


@given(st.lists(logs, min_size=5, max_size=5))
def test_one_pass_gives_the_gradients_of_several_quantities_to_the_last_bit(at: list[float]) -> None:
    tape = Tape()
    leaves = [tape.leaf(log) for log in at]
    whole = everything(tape, leaves)
    told = [whole, leaves[0] * tape.constant(COLUMN), whole * leaves[1], leaves[2], tape.constant(COLUMN), whole]
    together = tape.gradients_of_all(told, len(at), len(COLUMN))
    for place, quantity in enumerate(told):
        np.testing.assert_array_equal(together[:, place], tape.gradients(quantity, len(at), len(COLUMN)))
