"""The gradient of a dense layer's output: masked by ReLU, summed, transposed; against torch, for all shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.worker.model.dense_kernels import SPARE, add_bias, mask_and_sum, mask_and_transpose, widen
from elastichost.worker.model.kernel_calls import flat_array
from tests.effort import examples

GUARD = 32


def check(rows: int, columns: int, *, has_relu: bool, seed: int) -> None:
    """Compares with torch, and checks that nothing is written beyond the ends."""
    torch.manual_seed(seed)
    gradient = torch.randn(rows, columns).bfloat16()
    output = torch.randn(rows, columns).relu().bfloat16()
    masked = torch.full((rows * columns + GUARD,), 7.0, dtype=torch.bfloat16)
    apart = rows + SPARE
    transposed = torch.full((columns * apart + GUARD,), 7.0, dtype=torch.bfloat16)
    sums = torch.full((columns + GUARD,), 7.0)
    target = masked[: rows * columns] if has_relu else gradient
    mask_and_transpose(
        flat_array(gradient),
        flat_array(output),
        flat_array(target),
        flat_array(transposed[: columns * apart]),
        flat_array(sums[:columns]),
        rows,
        columns,
        apart,
        has_relu,
    )
    expected = torch.where(output > 0, gradient, torch.zeros_like(gradient)) if has_relu else gradient
    assert torch.equal(target.view(rows, columns), expected)
    assert torch.equal(transposed[: columns * apart].view(columns, apart)[:, :rows], expected.t())
    assert torch.allclose(sums[:columns], expected.float().sum(0), atol=1e-4)
    for values in (masked, transposed, sums):
        assert (values[-GUARD:] == 7.0).all()


@pytest.mark.parametrize("has_relu", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (16, 16), (32, 32), (33, 47), (64, 16), (50, 7), (7, 50), (0, 20)]
)
def test_shapes_around_whole_vectors_and_tiles(rows: int, columns: int, has_relu: bool) -> None:
    check(rows, columns, has_relu=has_relu, seed=1)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 80), st.integers(1, 80), st.booleans(), st.integers(0, 1000))
def test_any_shape(rows: int, columns: int, has_relu: bool, seed: int) -> None:
    check(rows, columns, has_relu=has_relu, seed=seed)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 40), st.integers(1, 80), st.booleans(), st.integers(0, 1000))
def test_any_shape_in_float32(rows: int, columns: int, has_relu: bool, seed: int) -> None:
    torch.manual_seed(seed)
    gradient, output = torch.randn(rows, columns), torch.randn(rows, columns).relu()
    masked, sums = torch.full((rows * columns + GUARD,), 7.0), torch.full((columns + GUARD,), 7.0)
    arrays = [flat_array(one) for one in (gradient, output, masked[: rows * columns], sums[:columns])]
    mask_and_sum(*arrays, rows, columns, has_relu)
    expected = torch.where(output > 0, gradient, torch.zeros_like(gradient)) if has_relu else gradient
    if has_relu:
        assert torch.equal(masked[: rows * columns].view(rows, columns), expected)
    assert torch.allclose(sums[:columns], expected.sum(0), atol=1e-4)
    assert (masked[-GUARD:] == 7.0).all() and (sums[-GUARD:] == 7.0).all()


@pytest.mark.parametrize("has_relu", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (1, 1), (3, 16), (7, 33), (5, 15)])
def test_bias_and_relu_are_those_of_torch(rows: int, columns: int, has_relu: bool) -> None:
    torch.manual_seed(rows)
    products, bias = torch.randn(rows, columns), torch.randn(columns)
    if rows > 1:
        products[1] = float("nan")
    expected = (products + bias).relu() if has_relu else products + bias
    room = torch.full((rows * columns + GUARD,), 7.0)
    room[: rows * columns] = products.view(-1)
    add_bias(flat_array(room[: rows * columns]), flat_array(bias), rows, columns, has_relu)
    torch.testing.assert_close(room[: rows * columns].view(rows, columns), expected, rtol=0, atol=0, equal_nan=True)
    assert (room[-GUARD:] == 7.0).all()


@pytest.mark.parametrize("columns", [16, 5])
def test_negative_zero_is_masked_and_not_a_number_passes_in_float32(columns: int) -> None:
    gradient, output = torch.full((3, columns), float("nan")), torch.full((3, columns), -0.0)
    output[1] = 1.0
    masked, sums = torch.empty_like(gradient), torch.empty(columns)
    mask_and_sum(*(flat_array(one) for one in (gradient, output, masked, sums)), 3, columns, True)
    assert masked[1].isnan().all() and (masked[[0, 2]] == 0).all()


def test_negative_zero_is_masked_and_not_a_number_passes() -> None:
    gradient = torch.full((16, 16), float("nan")).bfloat16()
    output = torch.full((16, 16), -0.0).bfloat16()
    output[3] = 1.0
    masked, transposed, sums = torch.empty_like(gradient), torch.empty_like(gradient), torch.empty(16)
    arrays = [flat_array(one) for one in (gradient, output, masked, transposed, sums)]
    mask_and_transpose(*arrays, 16, 16, 16, True)
    assert masked[3].isnan().all() and (masked[[0, 15]] == 0).all()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
def test_bfloat16_becomes_float32_and_is_summed(count: int) -> None:
    values = torch.randn(count).to(torch.bfloat16)
    out = np.full(count + 1, 5.0, np.float32)
    total = widen(flat_array(values), out)
    assert np.array_equal(out[:count], values.float().numpy()) and out[count] == 5.0
    assert total == pytest.approx(float(values.float().sum()), abs=1e-4)


@pytest.mark.parametrize("place", [0, 16, 18])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_sum_tells_of_an_element_that_is_not_finite(place: int, bad: float) -> None:
    values = torch.zeros(20, dtype=torch.bfloat16)
    values[place] = bad
    assert not np.isfinite(widen(flat_array(values), np.empty(20, np.float32)))
