"""Whole steps of a DLRM, compared with the same maths in plain torch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from benchmarks.gpu.engine import Engine, EngineShape, allocate_rows, build_engine, random_batches
from elastichost.gpu.step import WARM_UP_STEPS, DeviceStep, StepSwitches
from elastichost.gpu.step_inputs import StepInputs

SHAPE = EngineShape(24, 50, 16, tables=5, num_dense=4, bottom=(32,), top=(32,), is_narrow=False)


def _engine(device: torch.device, shape: EngineShape = SHAPE) -> Engine:
    return build_engine(shape, allocate_rows(shape, "device", device), device)


class _Plain:
    """The model of an engine in float64, with dense gradients for the tables."""

    def __init__(self, engine: Engine) -> None:
        rows = engine.memory.rows
        shape = engine.shape
        self.tables = rows.cpu().double().view(shape.tables, shape.rows, shape.dim).requires_grad_()
        self.state = torch.zeros(shape.tables, shape.rows, dtype=torch.float64)
        self.dense = engine.dense.device_values.cpu().double().requires_grad_()
        self.adam = torch.optim.Adam([self.dense], lr=1e-3)
        sizes = [(shape.num_dense, 32), (32, shape.dim), (shape.dim + 15, 32), (32, 1)]
        self.layers = sizes

    def loss(self, batch: StepInputs) -> torch.Tensor:
        weights, at = [], 0
        for columns, rows in self.layers:
            weight = self.dense[at : at + rows * columns].view(rows, columns)
            at += rows * columns
            weights.append((weight, self.dense[at : at + rows]))
            at += rows
        ids = batch.values.cpu().long().view(len(self.tables), -1)
        sparse = torch.stack([table[of] for table, of in zip(self.tables, ids, strict=True)], dim=1)
        x = batch.dense.cpu().double()
        for weight, bias in weights[:2]:
            x = functional.relu(functional.linear(x, weight, bias))
        every = torch.cat([x.unsqueeze(1), sparse], dim=1)
        products = torch.bmm(every, every.transpose(1, 2))
        pairs = torch.triu_indices(every.shape[1], every.shape[1], offset=1)
        y = torch.cat([x, products[:, pairs[0], pairs[1]]], dim=1)
        y = functional.relu(functional.linear(y, *weights[2]))
        logits = functional.linear(y, *weights[3])
        return functional.binary_cross_entropy_with_logits(logits, batch.labels.cpu().double())

    def train(self, batch: StepInputs) -> float:
        self.tables.grad = self.dense.grad = None
        loss = self.loss(batch)
        loss.backward()
        self.adam.step()
        assert self.tables.grad is not None
        with torch.no_grad():
            self.state += self.tables.grad.square().mean(dim=2)
            self.tables -= 0.1 * self.tables.grad / (self.state.sqrt() + 1e-8).unsqueeze(2)
        return float(loss)


def test_steps_equal_plain_torch(device: torch.device) -> None:
    engine = _engine(device)
    plain = _Plain(engine)
    for number, batch in enumerate(random_batches(SHAPE, 10, device, 3)):
        expected = plain.train(batch)
        engine.train(batch, number % 2)
        assert float(engine.step.losses[number % 2]) == pytest.approx(expected, rel=2e-5)
    rows, state = engine.memory.rows, engine.memory.state
    torch.testing.assert_close(rows.cpu().double().view_as(plain.tables), plain.tables.detach(), rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(state.cpu().double().view_as(plain.state), plain.state, rtol=2e-3, atol=1e-9)
    torch.testing.assert_close(engine.dense.device_values.cpu().double(), plain.dense.detach(), rtol=1e-3, atol=2e-4)


def test_bfloat16_follows_float32(device: torch.device) -> None:
    wide, narrow = _engine(device), _engine(device, dataclasses.replace(SHAPE, is_narrow=True))
    for number, batch in enumerate(random_batches(SHAPE, 10, device, 4)):
        for engine in (wide, narrow):
            engine.train(batch, number % 2)
        losses = [float(engine.step.losses[number % 2]) for engine in (wide, narrow)]
        assert losses[1] == pytest.approx(losses[0], rel=0.05)  # the rounding of ten steps with batches of 24


def test_a_batch_that_is_not_finite_changes_nothing(device: torch.device) -> None:
    engine = _engine(device)
    batches = random_batches(SHAPE, 9, device, 5)
    for number in range(8):  # beyond the eager steps: on a GPU the graphs run
        engine.train(batches[number], number % 2)
    rows, state = engine.memory.rows, engine.memory.state
    kept = [one.clone() for one in (rows, state, engine.dense.device_values)]
    dense = batches[8].dense.clone()
    dense[3, 2] = torch.nan
    engine.train(dataclasses.replace(batches[8], dense=dense), 0)
    assert int(engine.step.switches.is_refused) == 1
    for before, after in zip(kept, (rows, state, engine.dense.device_values), strict=True):
        assert torch.equal(before, after)
    engine.train(batches[0], 1)
    assert int(engine.step.switches.is_refused) == 0
    assert not torch.equal(kept[0], rows)


def test_lists_for_any_number_of_values_are_few(device: torch.device) -> None:
    lookup = _engine(device).lookup
    found = {id(lookup.lists_for(values)) for values in range(1000, 4000)}
    assert len(found) <= 18  # eight for each doubling
    assert all(len(lookup.lists_for(values).keys) >= values for values in (1, 1000, 1001, 3999))
    assert len(lookup.lists_for(26 * 2048).keys) == 26 * 2048


class _OnGpu:
    """Stands for gradients on a GPU, where there is none."""

    device = SimpleNamespace(type="cuda", index=0)

    def zero_(self) -> None:
        """Nothing to do."""


def _not_capturable(told: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> tuple[DeviceStep, list[int]]:
    """A step whose capture raises as torch does, and the halves of which its body has run."""
    halves = tuple(StepInputs(*(torch.zeros(2) for _ in range(4))) for _ in (0, 1))
    gradients: Any = torch.zeros(1)
    how = (lambda _: torch.zeros(1), lambda *_: None, gradients, contextlib.nullcontext)
    step = DeviceStep(*how, StepSwitches.allocate(gradients.device), halves, None if told is None else told.append)
    bodies: list[int] = []

    def capture(half: int) -> torch.cuda.CUDAGraph:
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904 - as torch does

    monkeypatch.setattr(step, "_gradients", _OnGpu())
    monkeypatch.setattr(step, "capture", capture)
    monkeypatch.setattr(step, "body", bodies.append)
    return step, bodies


def test_a_step_that_cannot_be_captured_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    step, bodies = _not_capturable(told, monkeypatch)
    for _ in range(WARM_UP_STEPS):
        step.run(0)
    assert told == [] and not step.cannot_be_captured
    for _ in range(3):
        step.run(0)
    assert bodies == [0] * (WARM_UP_STEPS + 3)
    assert len(told) == 1 and step.cannot_be_captured
    assert "steps run without a CUDA graph" in told[0] and "\n" not in told[0]
    assert "(operation not permitted when stream is capturing)" in told[0]
    for _ in range(WARM_UP_STEPS + 1):
        step.run(1)  # the other half is not tried
    assert len(told) == 1 and bodies[-WARM_UP_STEPS - 1 :] == [1] * (WARM_UP_STEPS + 1)


def test_a_benchmark_does_not_measure_eager_steps_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    step, bodies = _not_capturable(None, monkeypatch)
    for _ in range(WARM_UP_STEPS):
        step.run(0)
    with pytest.raises(RuntimeError, match="previous error"):
        step.run(0)
    assert len(bodies) == WARM_UP_STEPS


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_failed_capture_leaves_stream_and_memory(monkeypatch: pytest.MonkeyPatch, has_begun: bool) -> None:
    """torch's calls in their order; `torch.cuda.graph` leaves its stream the current one when `capture_end` raises."""
    calls: list[str] = []

    @contextlib.contextmanager
    def stream(one: str) -> Iterator[None]:
        try:
            yield
        finally:
            calls.append(f"back to {one}")

    @contextlib.contextmanager
    def graph(_: object, *, pool: object, capture_error_mode: str) -> Iterator[None]:
        calls.append(f"capture in {pool}, {capture_error_mode}")
        try:
            yield
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    def end(device: int, pool: object) -> None:
        calls.append(f"end {device} {pool}")
        if not has_begun:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    step, bodies = _not_capturable(None, monkeypatch)
    monkeypatch.delattr(step, "capture")
    failed = SimpleNamespace(reset=lambda: calls.append("reset"))
    patches = {
        "CUDAGraph": lambda: failed,
        "graph": graph,
        "stream": stream,
        "current_stream": lambda: "main",
        "graph_pool_handle": lambda: "pool",
    }
    for name, value in patches.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *of: calls.append(f"release {of}"), raising=False)
    with pytest.raises(RuntimeError, match="previous error"):
        step.capture(1)
    expected = ["capture in pool, thread_local", "back to main", "reset", "end 0 pool"]
    assert calls == ([*expected, "release (0, 'pool')"] if has_begun else expected)
    assert bodies == [1] and step._failed == [failed] and step._graphs == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures a graph, which needs a GPU")
def test_after_a_failed_capture_the_gpu_goes_on() -> None:
    device = torch.device("cuda")
    weights, told, finished = torch.zeros(4, device=device, requires_grad=True), [], []

    def loss(inputs: StepInputs) -> torch.Tensor:
        noise = functional.dropout(inputs.dense, 0.5)
        return (noise * weights).sum() * inputs.dense.sum().item()

    halves = tuple(StepInputs(*(torch.ones(4, device=device) for _ in range(4))) for _ in (0, 1))
    gradients = torch.zeros(4, device=device)
    how = (lambda half, _: finished.append(half), gradients, contextlib.nullcontext, StepSwitches.allocate(device))
    step = DeviceStep(loss, *how, halves, told.append)
    before = torch.cuda.current_stream()
    for number in range(2 * WARM_UP_STEPS + 4):
        step.run(number % 2)
    assert torch.cuda.current_stream() == before
    assert len(told) == 1 and len(finished) == 2 * WARM_UP_STEPS + 4
    functional.dropout(torch.ones(8, device=device), 0.5)  # random numbers, and another capture, still work
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert gradients.tolist() == [1.0] * 4
