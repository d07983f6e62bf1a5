"""Every row optimizer is applied by its own kernel."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from elastichost.ps.optimizer import apply_row_gradients
from elastichost.specs import EmbeddingSpec, RowOptimizer, RowOptimizerSpec

SPEC = EmbeddingSpec("e", 0, 0, "m", "bag", ("f",), 3, "sum", RowOptimizerSpec("sgd", 0.2, 1e-3), -1.0, 1.0)


def expected(name: RowOptimizer, weights: np.ndarray, state: np.ndarray, gradient: np.ndarray, scale: float) -> None:
    """The formulas of RowOptimizerSpec over the real (unpadded) dimensions."""
    rate = 0.2 * scale
    if name == "sgd":
        weights -= rate * gradient
        return
    state += gradient**2 if name == "adagrad" else (gradient**2).mean(axis=1, keepdims=True)
    weights -= rate / (np.sqrt(state) + 1e-3) * gradient


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad"])
def test_the_embeddings_optimizer_is_applied(name: RowOptimizer) -> None:
    spec = msgspec.structs.replace(SPEC, optimizer=RowOptimizerSpec(name, 0.2, 1e-3))
    generator = np.random.default_rng(0)
    weights = np.zeros((9, 4), np.float32)
    weights[:, :3] = generator.normal(size=(9, 3))
    state = {"sgd": None, "adagrad": np.zeros((9, 4), np.float32), "rowwise_adagrad": np.zeros(9, np.float32)}[name]
    rows = np.array([8, 0, 3])
    wanted, wanted_state = weights[rows, :3].astype(np.float64), np.zeros((3, 1 if name == "rowwise_adagrad" else 3))
    for scale in (1.0, 0.5):
        gradient = np.zeros((3, 4), np.float32)
        gradient[:, :3] = generator.normal(size=(3, 3))
        apply_row_gradients(spec, weights, state, rows, gradient, scale)
        expected(name, wanted, wanted_state, gradient[:, :3], scale)
    # eps is added to the root of the padded mean, hence the small difference
    np.testing.assert_allclose(weights[rows, :3], wanted, atol=2e-4 if name == "rowwise_adagrad" else 1e-6)
    assert not weights[:, 3].any()


def test_missing_state_is_an_error() -> None:
    spec = msgspec.structs.replace(SPEC, optimizer=RowOptimizerSpec("adagrad"))
    values = np.zeros((1, 4), np.float32)
    with pytest.raises(ValueError, match="without optimizer state"):
        apply_row_gradients(spec, values, None, np.zeros(1, np.int64), values, 1.0)
