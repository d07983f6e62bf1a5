"""The step of a worker with a GPU beside the step that autograd runs: equal rows, gradients and losses."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.wire.child import ChildArguments
from elastichost.wire.sockets import Caller
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.channels.channel import DirectoryHolder, pump_nothing
from elastichost.worker.gpu.staging import StagedBatch, Stager
from elastichost.worker.setup import LeaseParts, build_parts
from elastichost.worker.steps.batch_step import EagerStep, StepResult
from tests.worker.test_footprint import JOB, built

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from elastichost.gpu.step import DeviceStep

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="compares with the interpreter on the CPU")

BATCH = 24
MORE = f"[train]\nbatch_size = {BATCH}\n[data.input]\nreaders = 0\n"  # the batches are read here


class Room:
    """What a step needs of `DirectCommit`, without a PS: batch 1 is next, and its half of the mailbox is free."""

    next_sequence = 1

    def __init__(self, parts: LeaseParts) -> None:
        self._flat, self.vector = parts.flat, DenseStore(parts.arena).mailbox(0, 1).vector

    def before_backward(self) -> float:
        self._flat.write_into(self.vector)
        return 0.0


class Bench:
    """Two workers' parts on arenas of their own with equal rows: one with the step of a GPU, one with autograd's."""

    def __init__(self, directory: Path, lists: int) -> None:
        self.parts: dict[str, LeaseParts] = {}
        self.arenas: list[Arena] = []
        for name in ("gpu", "cpu"):
            self.parts[name] = self._build(directory / name, lists, name)

    def _build(self, directory: Path, lists: int, name: str) -> LeaseParts:
        (directory / "arena").mkdir(parents=True)
        path = directory / "job.toml"
        path.write_text(JOB.format(model="dlrm", rows=1000, lists=lists) + MORE)
        job = load_job(path, environ={})
        _, spec = built(job, open_reader(job, "train"))
        arena = Arena.create(directory / "arena", plan_layout(spec, 3, 1 << 24))
        self.arenas.append(arena)
        random = np.random.default_rng(1)
        for embedding in spec.embeddings:
            arena.rows_view(embedding.index)[:] = random.standard_normal((1000, 8)).astype(np.float32)
        arguments = ChildArguments(
            role="worker",
            index=0,
            incarnation=1,
            job_id=7,
            control_address=f"ipc://{directory}/control",
            run_dir=str(directory),
            arena_directory=str(directory / "arena"),
            socket_directory=str(directory),
            cores=(0,),
            threads=1,
            access="direct",
            supervisor_pid=1,
            gpu=0 if name == "gpu" else None,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")  # a worker without a GPU trains on the CPU all the same
            parts = build_parts(arguments, job, DirectoryHolder(Caller(7, arguments.process, 0)), pump_nothing)
        parts.flat.values[:] = np.random.default_rng(2).standard_normal(len(parts.flat.values)) * 0.1
        parts.flat.loaded()
        return parts

    def batches(self, name: str, *, size: int = BATCH) -> Iterator[PreparedBatch]:
        parts = self.parts[name]
        for samples in parts.train_reader.batches(parts.train_description.units[0], 0, 4 * size, size):
            yield parts.train_rows.prepare(samples, lease_id=1, epoch=0, create=True, clock=0)

    def train(self, name: str, batch: PreparedBatch) -> tuple[StepResult, np.ndarray]:
        """The result, and the vector that is pushed."""
        parts = self.parts[name]
        room = Room(parts)
        result = parts.step.run(parts.step.stage(batch), room)  # type: ignore[arg-type]
        parts.flat.write_push(room.vector)
        return result, room.vector.copy()

    def close(self) -> None:
        for parts in self.parts.values():
            parts.strategy.close()
        for arena in self.arenas:
            arena.close()


def with_values(batch: PreparedBatch, count: int) -> PreparedBatch:
    """The batch as it is staged if it had so many values."""
    return dataclasses.replace(batch, values=np.zeros(count, dtype=np.int64))


def room_of(batch: PreparedBatch) -> int:
    """Number of values that a staged batch has room for."""
    assert isinstance(batch.staged, StagedBatch)
    return len(batch.staged.inputs.values)


@pytest.fixture(params=[0, 2], ids=["one id", "lists"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(tmp_path, request.param)
    yield made
    made.close()


def test_steps_are_equal(bench: Bench) -> None:
    assert type(bench.parts["gpu"].step).__name__ == "DeviceTrainer"
    assert type(bench.parts["cpu"].step).__name__ == "EagerStep"
    assert type(bench.parts["cpu"].step) is EagerStep
    for mine, theirs in zip(bench.batches("gpu"), bench.batches("cpu"), strict=True):
        (found, pushed), (wanted, expected) = bench.train("gpu", mine), bench.train("cpu", theirs)
        assert found.trouble == wanted.trouble == ""
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        np.testing.assert_allclose(pushed, expected, rtol=1e-3, atol=1e-6)
    rows = [np.concatenate([arena.rows_view(e.index) for e in arena.model.embeddings]) for arena in bench.arenas]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-3, atol=1e-5)
    states = [np.concatenate([arena.state_view(e.index) for e in arena.model.embeddings]) for arena in bench.arenas]
    assert (states[0] > 0).any()
    np.testing.assert_allclose(states[0], states[1], rtol=1e-3, atol=1e-9)


def test_a_batch_of_another_size_trains_too(bench: Bench) -> None:
    mine, theirs = (next(iter(bench.batches(name, size=10))) for name in ("gpu", "cpu"))
    (found, pushed), (wanted, expected) = bench.train("gpu", mine), bench.train("cpu", theirs)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
    np.testing.assert_allclose(pushed, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("first", [100, 0])
def test_a_batch_with_a_few_more_values_is_staged(bench: Bench, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    step, batch = bench.parts["gpu"].step, next(iter(bench.batches("gpu")))
    drained: list[Stager] = []
    monkeypatch.setattr(Stager, "drain", lambda stager: drained.append(stager))
    before, after = (step.stage(with_values(batch, count)) for count in (first, 110))
    assert len(drained) == (1 if first == 0 else 0)  # only a stager that is dropped
    assert room_of(before) >= 64
    assert room_of(after) >= 110


def test_one_id_a_column_needs_no_more_room(bench: Bench) -> None:
    step, batch = bench.parts["gpu"].step, next(iter(bench.batches("gpu")))
    bags = len(batch.offsets) - 1
    assert room_of(step.stage(with_values(batch, bags))) == bags


def test_staging_grows_a_few_times(bench: Bench) -> None:
    step, batch = bench.parts["gpu"].step, next(iter(bench.batches("gpu")))
    rooms = set()
    for count in range(100, 420):
        rooms.add(room_of(step.stage(with_values(batch, count))))
    assert max(rooms) >= 420 and len(rooms) <= 8
    for count in range(420, 20_000, 20):
        staged = step.stage(with_values(batch, count))
        if staged.staged is None:
            break
        rooms.add(room_of(staged))
    assert len(rooms) == 8
    assert step.stage(with_values(batch, 20_000)).staged is None
    assert step.stage(with_values(batch, 100)).staged is not None


def test_batches_with_other_room_train_in_any_order(bench: Bench) -> None:
    step = bench.parts["gpu"].step
    (first, second, third), expected = (list(bench.batches(name))[:3] for name in ("gpu", "cpu"))
    staged = [step.stage(first), step.stage(second)]
    step.stage(with_values(first, 2 * len(first.values)))
    staged.insert(1, step.stage(third))
    assert room_of(staged[0]) == room_of(staged[2]) < room_of(staged[1])
    room = Room(bench.parts["gpu"])
    for mine, theirs in zip(staged, (expected[0], expected[2], expected[1]), strict=True):
        found, (wanted, _) = step.run(mine, room), bench.train("cpu", theirs)  # type: ignore[arg-type]
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
    rows = [np.concatenate([arena.rows_view(e.index) for e in arena.model.embeddings]) for arena in bench.arenas]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-3, atol=1e-5)


def test_a_step_that_cannot_be_captured_is_told_once_and_trains(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = bench.parts["gpu"]

    def capture(_step: DeviceStep, _half: int) -> torch.cuda.CUDAGraph:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(DeviceStep, "capture", capture)
    monkeypatch.setattr(DeviceStep, "_is_due", lambda step, _half: not step.cannot_be_captured)
    mine, theirs = (list(bench.batches(name)) for name in ("gpu", "cpu"))
    bench.train("gpu", mine[0]), bench.train("cpu", theirs[0])
    parts.step.stage(with_values(mine[0], 2 * len(mine[0].values)))  # the next batches have more room
    for one, other in zip(mine[1:], theirs[1:], strict=True):
        (found, pushed), (wanted, expected) = bench.train("gpu", one), bench.train("cpu", other)
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        np.testing.assert_allclose(pushed, expected, rtol=1e-3, atol=1e-6)
    assert len(parts.runner.warnings) == 1 and "without a CUDA graph" in parts.runner.warnings[0]


def test_a_batch_that_is_not_finite_changes_no_row(bench: Bench) -> None:
    batch = next(iter(bench.batches("gpu")))
    batch.samples.dense[2, 1] = np.nan
    before = bench.arenas[0].rows_flat.copy()
    result, _ = bench.train("gpu", batch)
    assert result.trouble == "the loss is nan"
    np.testing.assert_array_equal(before, bench.arenas[0].rows_flat)


def test_scores_are_equal(bench: Bench) -> None:
    mine, theirs = (next(iter(bench.batches(name))) for name in ("gpu", "cpu"))
    found, wanted = bench.parts["gpu"].runner.scores(mine), bench.parts["cpu"].runner.scores(theirs)
    np.testing.assert_allclose(found.logits, wanted.logits, rtol=1e-4, atol=1e-6)


def test_processes_do_not_inherit_the_interpreter() -> None:
    assert "TRITON_INTERPRET" not in os.environ
