"""The interaction kernels, and those of tiles, against the same products in numpy, for all widths around vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.rows.tiles import configuration, has_tiles
from elastichost.worker.model.interaction_kernels import ROOM, interact, interact_backward, interaction_width
from elastichost.worker.model.interaction_tiles import interact_tiles, interact_tiles_backward
from tests.effort import examples

GUARD = 64
FIELDS = (2, 3, 5, 6, 9, 16, 17, 18, 27, 32, 33, 34, 50)


def _plain(dense: npt.NDArray[np.float32], sparse: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    rows = np.concatenate([dense[:, None], sparse], axis=1)
    upper = np.triu_indices(rows.shape[1], 1)
    return np.concatenate([dense, (rows @ rows.transpose(0, 2, 1))[:, upper[0], upper[1]]], axis=1)


def _plain_backward(
    dense: npt.NDArray[np.float32], sparse: npt.NDArray[np.float32], gradient: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """[B, fields, dim]: gradients of the dense vector and of the sparse vectors."""
    samples, dim = dense.shape
    rows = np.concatenate([dense[:, None], sparse], axis=1)
    pairs = np.zeros((samples, rows.shape[1], rows.shape[1]), np.float32)
    upper = np.triu_indices(rows.shape[1], 1)
    pairs[:, upper[0], upper[1]] = gradient[:, dim:]
    result = (pairs + pairs.transpose(0, 2, 1)) @ rows
    result[:, 0] += gradient[:, :dim]
    return result


def _check(samples: int, fields: int, dim: int, seed: int) -> None:
    """Compares both kernels with numpy, and checks that they write nothing beyond the end of their arrays (of the
    output: beyond its ROOM)."""
    random = np.random.default_rng(seed)
    dense = random.standard_normal((samples, dim), dtype=np.float32)
    sparse = random.standard_normal((samples, fields - 1, dim), dtype=np.float32)
    width = interaction_width(fields, dim)
    out = np.full(samples * width + ROOM + GUARD, 7.0, np.float32)
    interact(dense.reshape(-1), sparse.reshape(-1), out[: samples * width + ROOM], samples, fields, dim)
    np.testing.assert_allclose(
        out[: samples * width].reshape(samples, width), _plain(dense, sparse), rtol=1e-4, atol=1e-4
    )
    gradient = random.standard_normal((samples, width), dtype=np.float32)
    of_dense = np.full(dense.size + GUARD, 7.0, np.float32)
    of_sparse = np.full(sparse.size + GUARD, 7.0, np.float32)
    interact_backward(
        dense.reshape(-1),
        sparse.reshape(-1),
        gradient.reshape(-1),
        of_dense[: dense.size],
        of_sparse[: sparse.size],
        samples,
        fields,
        dim,
    )
    expected = _plain_backward(dense, sparse, gradient)
    np.testing.assert_allclose(of_dense[: dense.size].reshape(dense.shape), expected[:, 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_sparse[: sparse.size].reshape(sparse.shape), expected[:, 1:], rtol=1e-4, atol=1e-4)
    for array in (out, of_dense, of_sparse):
        assert (array[-GUARD:] == 7.0).all(), "written beyond the end"


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("dim", [1, 4, 8, 16, 20, 32, 64])
def test_widths_around_whole_vectors(fields: int, dim: int) -> None:
    for samples in (1, 2, 3, 40):
        _check(samples, fields, dim, seed=samples)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 12), st.integers(2, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_any_shape(samples: int, fields: int, dim: int, seed: int) -> None:
    _check(samples, fields, dim, seed)


def test_neighbouring_samples_do_not_touch_each_other() -> None:
    """The overhang of one sample's lines is overwritten by the next sample, for any values."""
    random = np.random.default_rng(3)
    dense = random.standard_normal((9, 4), dtype=np.float32)
    sparse = random.standard_normal((9, 2, 4), dtype=np.float32)
    dense[4] = np.inf
    width = interaction_width(3, 4)
    out = np.empty(9 * width + ROOM, np.float32)
    with np.errstate(invalid="ignore"):
        interact(dense.reshape(-1), sparse.reshape(-1), out, 9, 3, 4)
    finite = np.isfinite(out[: 9 * width].reshape(9, width)).all(axis=1)
    assert finite.tolist() == [True] * 4 + [False] + [True] * 4


def to_words(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """bfloat16 as uint16, rounded to the nearest."""
    return torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)


def to_floats(words: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (words.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("dim", [16, 64, 128])
def test_bfloat16_is_float32_rounded_once(fields: int, dim: int) -> None:
    """Inputs are exact in bfloat16, so that only the outputs are rounded: to the nearest, by 2^-9 at most."""
    samples, random = 5, np.random.default_rng(fields)
    dense = to_words(random.standard_normal((samples, dim), dtype=np.float32).reshape(-1))
    sparse = random.standard_normal((samples, fields - 1, dim), dtype=np.float32)
    width = interaction_width(fields, dim)
    gradient = to_words(random.standard_normal(samples * width, dtype=np.float32))
    out = np.full(samples * width + ROOM + GUARD, 7, np.uint16)
    interact(dense, sparse.reshape(-1), out[: samples * width + ROOM], samples, fields, dim)
    floats = to_floats(dense).reshape(samples, dim)
    expected = _plain(floats, sparse).reshape(-1)
    np.testing.assert_allclose(to_floats(out[: samples * width]), expected, rtol=2**-8, atol=1e-3)
    of_dense, of_sparse = np.full(dense.size + GUARD, 7, np.uint16), np.empty(sparse.size, np.float32)
    interact_backward(dense, sparse.reshape(-1), gradient, of_dense[: dense.size], of_sparse, samples, fields, dim)
    exact = _plain_backward(floats, sparse, to_floats(gradient).reshape(samples, width))
    np.testing.assert_allclose(of_sparse.reshape(sparse.shape), exact[:, 1:], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(
        to_floats(of_dense[: dense.size]).reshape(samples, dim), exact[:, 0], rtol=2**-8, atol=1e-3
    )
    assert (out[-GUARD:] == 7).all() and (of_dense[-GUARD:] == 7).all(), "written beyond the end"


@pytest.mark.skipif(not has_tiles(), reason="this CPU has no AMX, or Linux does not permit its use")
@pytest.mark.parametrize("fields", [fields for fields in FIELDS if fields <= 32])
@pytest.mark.parametrize("dim", [32, 64, 128, 256])
def test_tiles_give_the_same_up_to_rounding(fields: int, dim: int) -> None:
    """All inputs are exact in bfloat16, so that only outputs are rounded."""
    samples, random = 5, np.random.default_rng(fields)
    dense = to_words(random.standard_normal((samples, dim), dtype=np.float32).reshape(-1))
    sparse = to_floats(to_words(random.standard_normal((samples, fields - 1, dim), dtype=np.float32)))
    width = interaction_width(fields, dim)
    gradient = to_words(random.standard_normal(samples * width, dtype=np.float32))
    out = np.full(samples * width + ROOM + GUARD, 7, np.uint16)
    flat = sparse.reshape(-1)
    interact_tiles(dense, flat, out[: samples * width + ROOM], samples, fields, dim, configuration())
    floats = to_floats(dense).reshape(samples, dim)
    expected = _plain(floats, sparse).reshape(-1)
    np.testing.assert_allclose(to_floats(out[: samples * width]), expected, rtol=2**-8, atol=1e-3)
    of_dense, of_sparse = np.full(dense.size + GUARD, 7, np.uint16), np.full(sparse.size + GUARD, 7, np.float32)
    outputs = of_dense[: dense.size], of_sparse[: sparse.size]
    interact_tiles_backward(dense, flat, gradient, *outputs, samples, fields, dim, configuration())
    exact = _plain_backward(floats, sparse, to_floats(gradient).reshape(samples, width))
    np.testing.assert_allclose(outputs[1].reshape(sparse.shape), exact[:, 1:], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(to_floats(outputs[0]).reshape(samples, dim), exact[:, 0], rtol=2**-8, atol=1e-3)
    for array in (out, of_dense, of_sparse):
        assert (array[-GUARD:] == 7).all(), "written beyond the end"


@pytest.mark.skipif(not has_tiles(), reason="this CPU has no AMX, or Linux does not permit its use")
def test_products_of_other_code_are_right_after_tiles_were_used() -> None:
    """oneDNN keeps a configuration of the tiles in the thread that used ours between its products."""
    left, right = (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (1, 2))
    before = left @ right
    words, floats = np.zeros(32, np.uint16), np.zeros(32, np.float32)
    interact_tiles(words, floats, np.zeros(33 + ROOM, np.uint16), 1, 2, 32, configuration())
    assert torch.equal(left @ right, before)
