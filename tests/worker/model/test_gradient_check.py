"""Gradients that are not finite are found before anything is updated with them."""

from __future__ import annotations

import math

import pytest
import torch

from elastichost.errors import NonFiniteError, SampleRange
from elastichost.worker.model.gradient_check import is_finite, leave_out


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_element_is_enough(bad: float) -> None:
    values = torch.zeros(1000)
    assert is_finite(values)
    values[777] = bad
    assert not is_finite(values)


def test_infinities_of_both_signs_and_sums_that_overflow_are_distinguished() -> None:
    assert not is_finite(torch.tensor([math.inf, -math.inf]))
    assert is_finite(torch.full((100,), 3e38))
    assert is_finite(torch.empty(0))


def test_only_the_policy_skip_continues() -> None:
    where = SampleRange(0, 1, 2, 3)
    leave_out("the loss is nan", where, "skip")
    for policy in ("stop", "roll_back"):
        with pytest.raises(NonFiniteError, match="the loss is nan at positions 2 to 3 of unit 1") as caught:
            leave_out("the loss is nan", where, policy)
        assert caught.value.samples == where
