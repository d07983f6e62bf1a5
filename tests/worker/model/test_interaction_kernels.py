"""The interaction kernels against the same products in numpy, for all widths around whole vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.worker.model.interaction_kernels import interact, interact_backward, interaction_width
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
    """Compares both kernels with numpy, and checks that they write nothing beyond the end of their arrays."""
    random = np.random.default_rng(seed)
    dense = random.standard_normal((samples, dim), dtype=np.float32)
    sparse = random.standard_normal((samples, fields - 1, dim), dtype=np.float32)
    width = interaction_width(fields, dim)
    out = np.full(samples * width + GUARD, 7.0, np.float32)
    interact(dense.reshape(-1), sparse.reshape(-1), out[: samples * width], samples, fields, dim)
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
    out = np.empty(9 * width, np.float32)
    with np.errstate(invalid="ignore"):
        interact(dense.reshape(-1), sparse.reshape(-1), out, 9, 3, 4)
    finite = np.isfinite(out.reshape(9, width)).all(axis=1)
    assert finite.tolist() == [True] * 4 + [False] + [True] * 4
