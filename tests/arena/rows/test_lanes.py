"""Vectors in kernels: loading, storing, and the stochastic rounding of bfloat16."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost import sharding
from elastichost.arena.compiled import compiled
from elastichost.arena.rows.lanes import (
    Array,
    Lanes,
    add,
    divide,
    lane,
    load,
    multiply,
    multiply_add,
    splat,
    square_root,
    store,
    subtract,
    total,
    transpose,
    zeros4,
    zeros16,
)

Float32 = npt.NDArray[np.float32]
UInt16 = npt.NDArray[np.uint16]
GOLDEN = 0x9E3779B97F4A7C15


@compiled
def _copy(source: Array, target: Array, like: Lanes, seed: np.uint64) -> None:
    step = 16
    if lane_count(like) == 4:
        step = 4
    for position in range(0, len(source), step):
        store(target, position, load(source, position, like), seed)


@compiled
def lane_count(like: Lanes) -> int:
    return round(total(add(splat(np.float32(1.0), like), subtract(like, like))))


@compiled
def copy4(source: Array, target: Array, seed: np.uint64) -> None:
    _copy(source, target, zeros4(), seed)


@compiled
def copy16(source: Array, target: Array, seed: np.uint64) -> None:
    _copy(source, target, zeros16(), seed)


@compiled
def arithmetic(left: Float32, right: Float32, out: Float32) -> None:
    """Four results of four elements each, then a sum and the third element of `left`."""
    like, unused = zeros4(), np.uint64(0)
    a, b = load(left, 0, like), load(right, 0, like)
    store(out, 0, add(a, b), unused)
    store(out, 4, multiply(a, b), unused)
    store(out, 8, divide(a, b), unused)
    store(out, 12, square_root(b), unused)
    out[16] = total(a)
    out[17] = lane(a, 2)


def test_arithmetic_equals_that_of_numpy() -> None:
    left, right = np.array([1.5, -2.25, 3.125, 0.1], np.float32), np.array([3.0, 0.3, 7.0, 11.0], np.float32)
    out = np.zeros(18, np.float32)
    arithmetic(left, right, out)
    np.testing.assert_array_equal(out[:16].reshape(4, 4), [left + right, left * right, left / right, np.sqrt(right)])
    assert out[16] == (left[0] + left[2]) + (left[1] + left[3])
    assert out[17] == left[2]


def rounded(values: Float32, seed: int, *, wide: bool = True) -> UInt16:
    out = np.zeros(len(values), np.uint16)
    (copy16 if wide else copy4)(values, out, np.uint64(seed))
    return out


@settings(deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=16, max_size=16), st.integers(0, 99)
)
def test_bfloat16_is_rounded_by_the_hash_of_its_position(values: list[float], seed: int) -> None:
    given_values = np.array(values * 2, np.float32)
    expected = []
    for position, bits in enumerate(given_values.view(np.uint32).tolist()):
        mixed = sharding.mix64((seed + position // 4 * GOLDEN) & ((1 << 64) - 1))
        expected.append((bits + (mixed >> 16 * (position % 4) & 0xFFFF)) >> 16)
    assert rounded(given_values, seed).tolist() == expected
    assert rounded(given_values, seed, wide=False).tolist() == expected


def test_bfloat16_is_loaded_as_the_same_number_in_float32() -> None:
    halves = np.random.default_rng(0).integers(0, 0x7F80, 64).astype(np.uint16)
    wide, narrow = np.zeros(64, np.float32), np.zeros(64, np.float32)
    copy16(halves, wide, np.uint64(0))
    copy4(halves, narrow, np.uint64(0))
    np.testing.assert_array_equal(wide.view(np.uint32), halves.astype(np.uint32) << 16)
    np.testing.assert_array_equal(narrow, wide)
    np.testing.assert_array_equal(rounded(wide, 5), halves)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_are_not_rounded(value: float) -> None:
    for seed in range(8):
        bits = rounded(np.full(16, value, np.float32), seed).astype(np.uint32) << 16
        np.testing.assert_array_equal(bits.view(np.float32), np.full(16, value, np.float32))


def test_rounding_is_right_on_average() -> None:
    value = np.float32(1.0 + 2.0**-7 * 0.3)  # three tenths of the way to the next bfloat16
    means = [
        (rounded(np.full(4096, value, np.float32), seed).astype(np.uint32) << 16).view(np.float32).mean()
        for seed in range(16)
    ]
    # 65,536 roundings of standard deviation 0.46 steps each: five standard errors
    assert abs(np.mean(means) - value) < 5 * 0.46 / 256 * 2.0**-7


@compiled
def fused(left: Float32, right: Float32, addend: Float32, out: Float32) -> None:
    store(
        out, 0, multiply_add(load(left, 0, zeros4()), load(right, 0, zeros4()), load(addend, 0, zeros4())), np.uint64(0)
    )


def test_multiply_add_rounds_once() -> None:
    left, right = np.full(4, 1 + 2**-12, np.float32), np.full(4, 1 - 2**-12, np.float32)
    out = np.zeros(4, np.float32)
    fused(left, right, np.full(4, -1, np.float32), out)
    assert out.tolist() == [-(2.0**-24)] * 4  # the product alone would be rounded to 1


@compiled
def transposed(source: Float32, start: int, width: int, target: Float32, place: int, target_width: int) -> None:
    transpose(source, start, width, target, place, target_width, zeros16())


def test_a_square_is_transposed_where_it_lies() -> None:
    source = np.arange(20 * 40, dtype=np.float32)
    target = np.full(16 * 18 + 5, -1, np.float32)
    transposed(source, 45, 40, target, 3, 18)
    square = source.reshape(20, 40)[1:17, 5:21]
    assert np.array_equal(target[3 : 3 + 16 * 18].reshape(16, 18)[:, :16], square.T)
    assert (target[3 : 3 + 16 * 18].reshape(16, 18)[:15, 16:] == -1).all()
