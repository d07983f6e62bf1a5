"""Whole steps of a DLRM, compared with the same maths in plain torch."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from benchmarks.gpu.engine import Engine, EngineShape, allocate_rows, build_engine, random_batches
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
