"""The dense part in memory of a GPU beside the optimizer of a parameter server: equal vectors, and what a successor
begins from after a kill at each step. An anonymous file stands for the memory of the GPU."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from elastichost.arena.arena import Arena
from elastichost.arena.dense.optimizer import dense_optimizer
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.errors import ConfigError, ModelLostError
from elastichost.wire.child import ChildArguments
from elastichost.wire.sockets import Caller
from elastichost.worker.channels.channel import DirectoryHolder, pump_nothing
from elastichost.worker.commit.device_commit import DeviceCommit
from elastichost.worker.gpu.resident_model import ResidentModel
from elastichost.worker.setup import LeaseParts, build_parts
from elastichost.worker.steps.batch_step import StepResult
from tests.gpu.memory.test_held_memory import LIMIT_S, holders_of
from tests.worker.test_footprint import JOB, built

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="compares with the interpreter on the CPU")

BATCH = 24
MORE = f"""[train]
batch_size = {BATCH}
[train.optimizer_dense]
{{optimizer}}
[data.input]
readers = 0
[resources]
gpus = 1
workers = 1
model_memory = "{{memory}}"
"""
ADAM = 'name = "adam"\nlr = 0.01\nweight_decay = 0.001'


class Room:
    """What a step needs of `DeviceCommit`, without a PS. sequence: of the batch that is computed."""

    def __init__(self, sequence: int) -> None:
        self.next_sequence = sequence

    def before_backward(self) -> float:
        return 0.0


class Worker:
    """An incarnation of the worker, with the model in memory of a GPU. committed: batches of this incarnation."""

    def __init__(self, host: Host) -> None:
        self._host, self.parts, self.committed = host, host.build("gpu"), 0
        self.parts.strategy.fetch()
        self.parts.residence.open()
        self.parts.strategy.refresh()

    @property
    def vector(self) -> np.ndarray:
        return self.parts.flat.device_values.numpy().copy()

    def compute(self, number: int, *, spoil: bool = False) -> StepResult:
        """The step of the batch with this number, which is not committed."""
        self.parts.strategy.refresh()
        batch = self._host.batch(self.parts, number)
        if spoil:
            batch.samples.dense[2, 1] = np.nan
        return self.parts.step.run(self.parts.step.stage(batch), Room(self.committed + 1))  # type: ignore[arg-type]

    def train(self, number: int) -> StepResult:
        result = self.compute(number)
        self.committed += 1
        self._host.commit(self.committed)
        return result

    def close(self) -> None:
        self.parts.strategy.close()


class Host:
    """An arena on which one worker after another trains, and a parameter server that only counts."""

    def __init__(self, directory: Path, optimizer: str = ADAM) -> None:
        self.directory, self.optimizer = directory, optimizer
        (directory / "arena").mkdir(parents=True)
        job = self._job("host")
        _, spec = built(job, open_reader(job, "train"))
        self.arena = Arena.create(directory / "arena", plan_layout(spec, 3, 1 << 24))
        random = np.random.default_rng(1)
        for embedding in spec.embeddings:
            self.arena.rows_view(embedding.index)[:] = random.standard_normal((1000, 8)).astype(np.float32) * 0.1
        self.dense = DenseStore(self.arena)
        first = np.random.default_rng(2).standard_normal(spec.dense.elements) * 0.1
        self.dense.load(first.astype(np.float32), None, 1, 0, 0)
        self.made: list[LeaseParts] = []

    def _job(self, memory: str):  # type: ignore[no-untyped-def]
        path = self.directory / "job.toml"
        more = MORE.format(optimizer=self.optimizer, memory=memory)
        path.write_text(JOB.format(model="dlrm", rows=1000, lists=0) + more)
        return load_job(path, environ={})

    def build(self, memory: str) -> LeaseParts:
        arguments = ChildArguments(
            role="worker",
            index=0,
            incarnation=len(self.made) + 1,
            job_id=7,
            control_address=f"ipc://{self.directory}/control",
            run_dir=str(self.directory),
            arena_directory=str(self.arena.directory),
            socket_directory=str(self.directory),
            cores=(0,),
            threads=1,
            access="direct",
            supervisor_pid=1,
            gpu=0,
        )
        holder = DirectoryHolder(Caller(7, arguments.process, 0))
        self.made.append(build_parts(arguments, self._job(memory), holder, pump_nothing))
        return self.made[-1]

    @staticmethod
    def batch(parts: LeaseParts, number: int):  # type: ignore[no-untyped-def]
        unit = parts.train_description.units[0]
        (samples,) = parts.train_reader.batches(unit, number * BATCH, (number + 1) * BATCH, BATCH)
        return parts.train_rows.prepare(samples, lease_id=1, epoch=0, create=True, clock=0)

    def commit(self, sequence: int, vector: np.ndarray | None = None) -> None:
        job = self._job("gpu")
        facts = {"lease_id": 1, "stop": 0, "samples": BATCH, "skipped": 0}
        place = {"worker": 0, "incarnation": len(self.made), "sequence": sequence}
        self.dense.apply_gradient(vector, dense_optimizer(job), 1.0, **place, **facts)

    def close(self) -> None:
        for parts in self.made:
            parts.strategy.close()
        holders = holders_of(self.arena.directory)
        self.arena.close()
        shutil.rmtree(self.directory)
        for holder in holders:
            holder.wait(LIMIT_S)


MakeHost = Callable[..., Host]


@pytest.fixture
def make_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeHost]:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
    made: list[Host] = []

    def make(optimizer: str = ADAM) -> Host:
        made.append(Host(tmp_path / f"host-{len(made)}", optimizer))
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.mark.parametrize(
    "optimizer",
    [
        ADAM,
        'name = "adamw"\nlr = 0.01\nweight_decay = 0.1',
        'name = "adagrad"\nlr = 0.01',
        'name = "sgd"\nlr = 0.1\nmomentum = 0.9',
    ],
)
def test_vectors_are_those_of_a_parameter_server(make_host: MakeHost, optimizer: str) -> None:
    resident, plain = make_host(optimizer), make_host(optimizer)
    worker, parts = Worker(resident), plain.build("host")
    assert isinstance(worker.parts.strategy, DeviceCommit)
    assert isinstance(worker.parts.residence, ResidentModel)
    for number in range(4):
        parts.flat.values[:] = plain.dense.state_copy().vector
        parts.flat.loaded()
        wanted = parts.step.run(parts.step.stage(plain.batch(parts, number)), Room(number + 1))  # type: ignore[arg-type]
        plain.commit(number + 1, plain.dense.mailbox(0, (number + 1) % 2).vector.copy())
        found = worker.train(number)
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        np.testing.assert_allclose(worker.vector, plain.dense.state_copy().vector, rtol=1e-4, atol=1e-6)
    worker.parts.residence.write_back(for_good=True)
    mine, theirs = resident.dense.state_copy(), plain.dense.state_copy()
    assert (mine.version, mine.step, mine.samples_applied) == (theirs.version, theirs.step, theirs.samples_applied)
    np.testing.assert_allclose(mine.vector, theirs.vector, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mine.state, theirs.state, rtol=1e-3, atol=1e-7)
    for embedding in plain.arena.model.embeddings:
        views = [host.arena.rows_view(embedding.index) for host in (resident, plain)]
        np.testing.assert_allclose(*views, rtol=1e-3, atol=1e-5)


def test_the_arena_is_older_until_it_is_written_back(make_host: MakeHost) -> None:
    host = make_host()
    worker = Worker(host)
    worker.train(0)
    assert (host.dense.state_copy().vector != worker.vector).any()
    worker.parts.residence.write_back(for_good=False)
    assert (host.dense.state_copy().vector == worker.vector).all()


def test_an_evaluation_does_not_load_the_older_vector_of_the_arena(make_host: MakeHost) -> None:
    worker = Worker(make_host())
    worker.train(0)
    before = worker.vector
    worker.parts.strategy.fetch()  # as an evaluation does
    worker.parts.strategy.refresh()
    assert (worker.vector == before).all()


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_successor_begins_from_the_last_batch(make_host: MakeHost, batches: int) -> None:
    host, other = make_host(), make_host()
    first, undisturbed = Worker(host), Worker(other)
    for number in range(batches):
        first.train(number)
        undisturbed.train(number)
    successor = Worker(host)
    assert (successor.vector == first.vector).all()
    assert successor.train(batches).loss == undisturbed.train(batches).loss
    assert (successor.vector == undisturbed.vector).all()


@pytest.mark.parametrize("batches", [1, 2])
def test_a_successor_does_not_begin_from_a_torn_batch(make_host: MakeHost, batches: int) -> None:
    host = make_host()
    first = Worker(host)
    for number in range(batches):
        first.train(number)
    whole = first.vector
    first.compute(batches)  # killed before it was released
    assert (first.vector != whole).any()
    assert (Worker(host).vector == whole).all()


def test_a_successor_writes_the_older_half_first(make_host: MakeHost) -> None:
    host = make_host()
    Worker(host).train(0)
    second = Worker(host)
    whole = second.vector
    second.compute(1)  # torn
    assert (Worker(host).vector == whole).all()


def test_a_kill_while_a_half_is_written_after_a_refused_batch(make_host: MakeHost) -> None:
    """Both halves have the same step then, until one of them is begun."""
    host = make_host()
    first = Worker(host)
    first.train(0)
    whole = first.vector
    first.compute(1, spoil=True)
    dense = first.parts.step._resident  # type: ignore[attr-defined]
    dense._states = [Cut(), Cut()]
    with pytest.raises(Killed):
        first.compute(2)
    assert (Worker(host).vector == whole).all()


class Killed(BaseException):
    """Stands for SIGKILL."""


class Cut:
    """A state at whose writing the process is killed."""

    def copy_(self, _: torch.Tensor) -> None:
        raise Killed


def test_a_kill_while_a_half_is_written_leaves_the_other_one(make_host: MakeHost) -> None:
    host = make_host()
    first = Worker(host)
    first.train(0)
    whole = first.vector
    dense = first.parts.step._resident  # type: ignore[attr-defined]
    half = (dense._newest + 2) % 2  # of batch 2
    dense._marks[half].fill_(-1)
    dense._vectors[half].fill_(3.0)
    assert (Worker(host).vector == whole).all()


def test_a_released_batch_that_nobody_counted_is_used_when_its_predecessor_is_gone(make_host: MakeHost) -> None:
    """Worker, dense owner and supervisor are killed at once: batch 2 is released and not counted, batch 3 has begun to
    write over the half of batch 1. The rows have learnt from batch 2 as well."""
    host = make_host()
    first = Worker(host)
    first.train(0)
    first.compute(1)
    first.committed += 1  # released
    released = first.vector
    first.parts.step._resident._states = [Cut(), Cut()]  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        first.compute(2)
    assert (Worker(host).vector == released).all()


def test_after_such_a_batch_both_sides_count_alike(make_host: MakeHost) -> None:
    """The arena counts one batch less than the half from which the successor has begun."""
    host = make_host()
    first = Worker(host)
    first.train(0)
    first.compute(1)
    first.committed += 1  # released, never counted
    dense = first.parts.step._resident  # type: ignore[attr-defined]
    dense._marks[(dense._newest + 3) % 2].fill_(-1)
    second = Worker(host)
    for number in (1, 2, 3):
        second.train(number)
        second.parts.residence.write_back(for_good=False)
        assert (host.dense.state_copy().vector == second.vector).all()
    second.compute(4)  # torn
    third = Worker(host)
    assert (third.vector == host.dense.state_copy().vector).all()


def test_a_batch_that_is_counted_while_the_successor_starts_is_not_lost(make_host: MakeHost) -> None:
    host, other = make_host(), make_host()
    first, undisturbed = Worker(host), Worker(other)
    first.train(0)
    first.compute(1)  # released; the dense owner is slow
    for number in (0, 1):
        undisturbed.train(number)
    second = Worker(host)
    host.commit(2)  # now the dense owner counts it
    second.train(2)
    undisturbed.train(2)
    assert (second.vector == undisturbed.vector).all()
    second.parts.residence.write_back(for_good=True)
    assert (host.dense.state_copy().vector == undisturbed.vector).all()


def test_buffers_that_a_refused_batch_has_spoilt_are_taken_back(make_host: MakeHost) -> None:
    host = make_host()
    first = Worker(host)
    first.train(0)
    dense, flat = first.parts.step._resident, first.parts.flat  # type: ignore[attr-defined]
    place = dense._place
    dense._place = dataclasses.replace(place, parameters=place.parameters - 4)  # as if the last four were buffers
    whole = first.vector
    flat.device_values[-4:] = float("nan")  # what a forward pass writes
    assert first.compute(1, spoil=True).trouble
    assert (first.vector == whole).all()
    assert (Worker(host).vector == whole).all()


def test_without_a_whole_half_the_model_is_lost(make_host: MakeHost) -> None:
    host = make_host()
    first = Worker(host)
    first.train(0)
    for mark in first.parts.step._resident._marks:  # type: ignore[attr-defined]
        mark.fill_(-1)
    with pytest.raises(ModelLostError, match="no dense part of step 1 or later"):
        Worker(host)


def test_a_batch_that_is_not_finite_changes_nothing(make_host: MakeHost) -> None:
    host = make_host()
    first = Worker(host)
    first.train(0)
    whole = first.vector
    assert first.compute(1, spoil=True).trouble == "the loss is nan"
    assert (first.vector == whole).all()
    assert (Worker(host).vector == whole).all()
    first.train(2)
    assert (Worker(host).vector == first.vector).all()


def test_a_limit_of_the_norm_is_refused(make_host: MakeHost) -> None:
    host = make_host()
    parts = host.build("gpu")
    assert isinstance(parts.residence, ResidentModel)
    switches = parts.step._switches  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="clip_norm"):
        parts.residence.dense_part(parts.flat, DenseOptimizerSpec(clip_norm=1.0), switches)
