"""Frames of lines: gathered, scattered, and applied as gradients, against plain numpy and fbgemm's fused optimizers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.kernels import gather_lines, scatter_lines, update_lines
from elastichost.arena.rows.bag_updates import OPTIMIZER_CODES
from elastichost.arena.rows.lines import LinePlan
from elastichost.arena.rows.update_rates import kernel_rates, scaled_rates
from elastichost.specs import EmbeddingSpec, RowOptimizer, RowOptimizerSpec
from tests.effort import examples

FBGEMM = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}
ROWS = 60


def embedding(index: int, table: int, dim: int, optimizer: RowOptimizer = "sgd", decay: float = 0.0) -> EmbeddingSpec:
    chosen = RowOptimizerSpec(optimizer, 0.07, 1e-6, weight_decay=decay)
    return EmbeddingSpec(f"e{index}", index, table, "m", "bag", ("f",), dim, "sum", chosen, 0, 0)


@settings(deadline=None, max_examples=examples(40))
@given(
    dims=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 70)), min_size=1, max_size=4),
    counts=st.tuples(*[st.integers(0, 40)] * 3),
    narrow=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gathered_lines_equal_the_rows_and_scattering_restores_them(
    dims: list[tuple[int, int]], counts: tuple[int, int, int], narrow: bool, seed: int
) -> None:
    """The rows of every embedding follow one another; the number -1 gives a line of zeros."""
    rng = np.random.default_rng(seed)
    plan = LinePlan([embedding(i, table, dim) for i, (table, dim) in enumerate(dims)])
    bounds = np.cumsum([0, *counts])
    widths = [e.padded_dim for e in plan.embeddings]
    bases = np.cumsum([0, *(ROWS * width for width in widths)])
    exact = rng.normal(size=bases[-1]).astype(np.float32)
    exact = (exact.view(np.uint32) & 0xFFFF0000).view(np.float32)  # as bfloat16 holds it
    rows = (exact.view(np.uint32) >> 16).astype(np.uint16) if narrow else exact
    numbers = np.concatenate([rng.permutation(ROWS)[:count] for count in counts]).astype(np.int64)
    numbers[rng.random(len(numbers)) < 0.1] = -1
    frame = np.full(plan.offsets(bounds)[-1], 9.0, np.float32)
    gather_lines(rows, plan.lines(bounds, bases[:-1]), numbers, frame)
    for e, base, at in zip(plan.embeddings, bases, plan.offsets(bounds), strict=False):
        items = numbers[bounds[e.table] : bounds[e.table + 1]]
        weights = exact[base : base + ROWS * e.padded_dim].reshape(ROWS, -1)
        lines = frame[at : at + len(items) * e.padded_dim].reshape(-1, e.padded_dim)
        assert np.array_equal(lines, np.where(items[:, None] < 0, 0, weights[items]))
    whole, some = np.zeros_like(frame), rng.permutation(len(numbers))[: len(numbers) // 2]
    some.sort()
    of_part = np.searchsorted(some, bounds)
    part = np.empty(plan.offsets(of_part)[-1], np.float32)
    lines_of_part = plan.lines(of_part, plan.bases_within(bounds))
    gather_lines(frame, lines_of_part, some, part)
    scatter_lines(part, lines_of_part, some, whole)
    for e, at in zip(plan.embeddings, plan.offsets(bounds), strict=False):
        first, stop = bounds[e.table], bounds[e.table + 1]
        lines, back = (
            flat[at : at + (stop - first) * e.padded_dim].reshape(-1, e.padded_dim) for flat in (frame, whole)
        )
        chosen = np.isin(np.arange(first, stop), some)
        assert np.array_equal(back, np.where(chosen[:, None], lines, 0))


def fused(spec: EmbeddingSpec, weights: npt.NDArray[np.float32]) -> SplitTableBatchedEmbeddingBagsCodegen:
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(len(weights), spec.padded_dim, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=FBGEMM[spec.optimizer.name],
        learning_rate=spec.kernel_learning_rate,
        eps=1e-6,
        pooling_mode=PoolingMode.SUM,
        device=torch.device("cpu"),
    )
    (parameter,) = kernel.split_embedding_weights()
    parameter.copy_(torch.from_numpy(weights))
    return kernel


@pytest.mark.parametrize("dim", [1, 6, 16, 20])
def test_optimizers_equal_those_of_fbgemm(dim: int) -> None:
    """One embedding with each optimizer, in one call."""
    names: list[RowOptimizer] = ["rowwise_adagrad", "sgd", "adagrad"]
    specs = [embedding(i, i, dim, name) for i, name in enumerate(names)]
    width, rng = specs[0].padded_dim, np.random.default_rng(5)
    size = 100 * width
    weights = np.zeros((300, width), np.float32)
    weights[:, :dim] = rng.normal(size=(300, dim))
    references = [fused(spec, weights[100 * i : 100 * i + 100]) for i, spec in enumerate(specs)]
    rows, state = weights.reshape(-1).copy(), np.zeros(3 * size, np.float32)
    plan, counts = LinePlan(specs), np.array([0, 40, 77, 100])
    updates = np.array([[i * size, OPTIMIZER_CODES[name]] for i, name in enumerate(names)])
    rates = kernel_rates(specs)
    for _ in range(4):
        numbers = np.concatenate([rng.permutation(100)[:count] for count in np.diff(counts)])
        gradients = np.zeros((100, width), np.float32)
        gradients[:, :dim] = rng.normal(size=(100, dim))
        lines = plan.lines(counts, np.arange(3) * size)
        update_lines(rows, state, lines, updates, rates, numbers, gradients.reshape(-1), np.uint64(0))
        for i, reference in enumerate(references):
            ids = torch.from_numpy(numbers[counts[i] : counts[i + 1]])
            pooled = reference(ids, torch.arange(len(ids) + 1))
            pooled.backward(torch.from_numpy(gradients[counts[i] : counts[i + 1]]))
    for i, (spec, reference) in enumerate(zip(specs, references, strict=True)):
        (parameter,) = reference.split_embedding_weights()
        of_one = rows[i * size : (i + 1) * size].reshape(100, width)
        np.testing.assert_allclose(of_one, parameter.numpy(), rtol=1e-6, atol=1e-6)
        assert not of_one[:, dim:].any()
        if spec.state_floats_per_row:
            expected = reference.split_optimizer_states()[0][0].numpy().ravel()
            np.testing.assert_allclose(state[i * size : i * size + len(expected)], expected, rtol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.2])
@pytest.mark.parametrize("dim", [1, 6, 16, 20])
def test_adam_of_each_row_equals_torchs(dim: int, decay: float) -> None:
    """Each row is a parameter of its own for torch, which counts the steps in which it has a gradient."""
    spec = embedding(0, 0, dim, "adam", decay)
    width, rng = spec.padded_dim, np.random.default_rng(5)
    weights = np.zeros((30, width), np.float32)
    weights[:, :dim] = rng.normal(size=(30, dim))
    parameters = [torch.nn.Parameter(torch.from_numpy(row[:dim].copy())) for row in weights]
    optimizer = torch.optim.AdamW(parameters, lr=0.07, eps=1e-6, weight_decay=decay)
    rows, state = weights.reshape(-1).copy(), np.zeros(30 * spec.state_floats_per_row, np.float32)
    plan, updates = LinePlan([spec]), np.array([[0, OPTIMIZER_CODES["adam"]]])
    for step in range(6):
        numbers = rng.permutation(30)[: 10 + step]
        gradients = np.zeros((len(numbers), width), np.float32)
        gradients[:, :dim] = rng.normal(size=(len(numbers), dim))
        scale = 0.5 if step > 3 else 1.0
        lines = plan.lines(np.array([0, len(numbers)]), np.zeros(1, np.int64))
        rates = scaled_rates(kernel_rates([spec]), scale)
        update_lines(rows, state, lines, updates, rates, numbers, gradients.reshape(-1), np.uint64(0))
        optimizer.param_groups[0]["lr"] = 0.07 * scale
        optimizer.zero_grad(set_to_none=True)
        for number, gradient in zip(numbers, gradients, strict=True):
            parameters[number].grad = torch.from_numpy(gradient[:dim])
        optimizer.step()
    found = rows.reshape(30, width)
    np.testing.assert_allclose(found[:, :dim], torch.stack(parameters).detach().numpy(), rtol=2e-6, atol=2e-6)
    assert not found[:, dim:].any()
    counts = state.reshape(30, -1)[:, -1]
    assert counts.tolist() == [float(optimizer.state[p]["step"]) if p in optimizer.state else 0 for p in parameters]


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_weight_decay_shrinks_the_rows_of_a_batch_only(name: RowOptimizer) -> None:
    """A gradient of zeros leaves weight decay alone; without it the row keeps its bits."""
    weights = np.random.default_rng(1).normal(size=(8, 20)).astype(np.float32)
    for decay in (0.0, 0.5):
        spec = embedding(0, 0, 20, name, decay)
        rows, state = weights.reshape(-1).copy(), np.zeros(8 * 41, np.float32)
        plan, updates = LinePlan([spec]), np.array([[0, OPTIMIZER_CODES[name]]])
        lines, numbers = plan.lines(np.array([0, 3]), np.zeros(1, np.int64)), np.array([6, 1, 4])
        update_lines(rows, state, lines, updates, kernel_rates([spec]), numbers, np.zeros(60, np.float32), np.uint64(0))
        expected = weights.copy()
        expected[numbers] *= np.float32(1.0) - np.float32(0.07 * decay)
        np.testing.assert_array_equal(rows.reshape(8, 20), expected)


def test_updates_of_bfloat16_rows_are_right_on_average() -> None:
    """Steps far below the precision of a row: a thousand of them move it as far as one step of a thousand times the
    size."""
    spec = embedding(0, 0, 16)
    plan, bounds = LinePlan([spec]), np.array([0, 50])
    rows = np.full(50 * 16, 0x3F80, np.uint16)  # 1.0
    lines, updates = plan.lines(bounds, np.zeros(1, np.int64)), np.array([[0, OPTIMIZER_CODES["sgd"]]])
    rates, gradients = np.array([[0.1, 0.0, 0.0, 0.0, 0.0]], np.float32), np.full(800, 1e-3, np.float32)
    for step in range(1000):
        update_lines(
            rows, np.zeros(1, np.float32), lines, updates, rates, np.arange(50), gradients, np.uint64(step * 977)
        )
    values = (rows.astype(np.uint32) << 16).view(np.float32)
    assert values.mean() == pytest.approx(0.9, abs=0.005)


def test_the_rounding_of_bfloat16_does_not_depend_on_where_an_embedding_lies() -> None:
    """Regression: in sync mode the bits of a model followed from the memory that was free on the host, because the
    space of dynamic tables, which may lie before others, does."""
    plan, bounds, numbers = LinePlan([embedding(0, 0, 16), embedding(1, 0, 16)]), np.array([0, 20]), np.arange(20)
    rates = np.array([[0.1, 0.0, 0.0, 0.0, 0.0]] * 2, np.float32)
    updates = np.array([[0, OPTIMIZER_CODES["sgd"]]] * 2)
    found = []
    for bases in ((0, 320), (512, 2048)):
        rows = np.full(2048 + 320, 0x3F80, np.uint16)  # 1.0
        lines, gradients = plan.lines(bounds, np.array(bases)), np.full(640, 1e-2, np.float32)
        update_lines(rows, np.zeros(1, np.float32), lines, updates, rates, numbers, gradients, np.uint64(7))
        found.append([rows[base : base + 320].tolist() for base in bases])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1], "embeddings are rounded independently of each other"
    assert len(set(found[0][0])) == 2, "some are rounded up, some down"
