"""Rows in memory of a GPU: what a successor finds after a kill at each step, and what a checkpoint finds. An anonymous
file stands for the memory of the GPU."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.arena.recovery.device_residence import NEVER, DeviceResidence, read_residence
from elastichost.errors import ArenaError, GpuMemoryError, ModelLostError
from elastichost.gpu.memory.held_memory import is_held
from elastichost.gpu.memory.write_back import MODEL_LOST
from elastichost.gpu.memory.write_back import main as write_back
from elastichost.worker.access.residence import ArenaResidence
from elastichost.worker.gpu import resident_model
from elastichost.worker.gpu.resident_model import ResidentModel
from tests.arena.conftest import build_model
from tests.gpu.memory.test_held_memory import LIMIT_S, holders_of

CPU = torch.device("cpu")
DEVICE = "GPU-7"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of this process' clean-up runs."""


class Host:
    """An arena with two tables, and the version of a dense vector. Each worker is another incarnation."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.arena = Arena.create(directory, plan_layout(build_model(rows=(40, 300), dims=(4, 8)), 7, 1 << 24))
        for table in range(4):
            self.arena.rows_view(table)[:] = table + 1
        self.committed = 0
        self.beats = 0

    @property
    def directory(self) -> Path:
        return self.arena.directory

    def version(self) -> int:
        return self.committed

    def worker(self) -> ResidentModel:
        return ResidentModel(self.arena, self, CPU, self.beat)  # type: ignore[arg-type]

    def beat(self) -> None:
        self.beats += 1

    def train(self, rows: ResidentModel, value: float) -> None:
        """Adds to the rows of all embeddings where the worker has them, and commits a batch."""
        specs = self.arena.model.embeddings
        placement = rows.placement(specs)
        for spec, offset, count in zip(specs, placement.rows_offsets, placement.row_counts, strict=True):
            view(placement.rows_address + 4 * offset, count * spec.padded_dim)[:] += value
        self.committed += 1

    def rows(self) -> list[float]:
        """The value of the rows of each embedding in the arena."""
        return [float(self.arena.rows_view(number).mean()) for number in range(4)]

    @property
    def away(self) -> DeviceResidence | None:
        return read_residence(self.directory)


def view(address: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", DEVICE)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    host = Host(tmp_path / "arena")
    yield host
    holders = holders_of(host.directory)
    host.arena.close()
    shutil.rmtree(host.directory)
    for holder in holders:
        holder.wait(LIMIT_S)


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that lets the next worker die at this crash point."""

    def arm(point: str) -> None:
        def die(name: str) -> None:
            if name == point:
                monkeypatch.setattr(resident_model, "crash_point", lambda _: None)
                raise Killed

        monkeypatch.setattr(resident_model, "crash_point", die)

    return arm


def test_rows_are_trained_in_memory_of_the_gpu_and_written_back(host: Host) -> None:
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)
    assert host.rows() == [1.0, 2.0, 3.0, 4.0]
    rows.write_back(for_good=False)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]
    assert host.away is not None and host.away.written_version == 1
    host.train(rows, 10.0)
    rows.write_back(for_good=True)
    assert host.rows() == [21.0, 22.0, 23.0, 24.0]
    assert host.away is None


def test_state_of_the_optimizer_goes_along(host: Host) -> None:
    state = host.arena.state_view(1)
    assert state is not None
    state[:] = 3.0
    rows = host.worker()
    rows.open()
    state[:] = 0.0
    host.committed += 1
    rows.write_back(for_good=True)
    assert (state == 3.0).all()


def test_heartbeats_are_sent_while_rows_are_copied(host: Host) -> None:
    rows = host.worker()
    rows.open()
    assert host.beats == 8  # rows and state of four embeddings
    host.train(rows, 1.0)
    rows.write_back(for_good=True)
    assert host.beats == 16


def test_a_successor_trains_the_same_memory(host: Host) -> None:
    first = host.worker()
    first.open()
    host.train(first, 10.0)
    successor = host.worker()  # the first one was killed: nothing was written back
    successor.open()
    host.train(successor, 10.0)
    successor.write_back(for_good=True)
    assert host.rows() == [21.0, 22.0, 23.0, 24.0]


def test_a_kill_before_the_record_leaves_the_rows_in_the_arena(host: Host, killed_at: Callable[[str], None]) -> None:
    killed_at("worker.model.held")
    with pytest.raises(Killed):
        host.worker().open()
    assert host.away is None
    ArenaResidence(host.directory)  # a worker without a GPU may use them
    successor = host.worker()
    successor.open()
    host.train(successor, 10.0)
    successor.write_back(for_good=True)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]


def test_a_kill_after_the_record_leaves_the_rows_in_the_memory(host: Host, killed_at: Callable[[str], None]) -> None:
    killed_at("worker.model.resident")
    with pytest.raises(Killed):
        host.worker().open()
    assert host.away is not None and host.away.written_version == NEVER
    host.arena.rows_view(0)[:] = -1  # the successor must not read these rows
    successor = host.worker()
    successor.open()
    host.train(successor, 10.0)
    successor.write_back(for_good=True)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]


def test_a_kill_while_rows_are_written_back_counts_as_not_written(host: Host, killed_at: Callable[[str], None]) -> None:
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)
    killed_at("worker.model.written")
    with pytest.raises(Killed):
        rows.write_back(for_good=True)
    assert host.away is not None and host.away.written_version == NEVER
    successor = host.worker()
    successor.open()
    successor.write_back(for_good=True)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]


def test_rows_that_are_written_back_are_not_copied_again(host: Host) -> None:
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)
    rows.write_back(for_good=False)
    host.beats = 0
    rows.write_back(for_good=False)
    assert host.beats == 0


def test_what_a_torn_batch_has_changed_is_written_as_it_is_in_the_arena(host: Host) -> None:
    """An evaluation sees it, so the checkpoint of this evaluation must have it."""
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)
    rows.write_back(for_good=False)
    host.train(rows, 5.0)
    host.committed -= 1  # its worker was killed before it was released
    successor = host.worker()
    successor.open()
    assert host.away is not None and host.away.written_version == NEVER
    successor.write_back(for_good=False)
    assert host.rows() == [16.0, 17.0, 18.0, 19.0]


def test_two_workers_cannot_have_the_model(host: Host) -> None:
    first, second = host.worker(), host.worker()
    first.open()
    with pytest.raises(ArenaError, match="another worker's GPU"):
        second.open()


def test_a_holder_that_cannot_be_replaced_now_ends_no_worker(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = host.worker()
    rows.open()

    def fails(*_: object) -> bool:
        raise BlockingIOError("no process can be started")

    with monkeypatch.context() as patch:
        patch.setattr(resident_model, "is_held", fails)
        rows.look(now_s=1000.0)
    assert "has no other holder now: no process can be started" in capsys.readouterr().out
    host.train(rows, 10.0)
    rows.write_back(for_good=True)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]


def test_the_holder_forgets_memory_that_was_written_back_for_good(host: Host) -> None:
    rows = host.worker()
    rows.open()
    assert host.away is not None
    token = host.away.token
    assert is_held(host.directory, token)
    rows.write_back(for_good=True)
    assert not is_held(host.directory, token)


def test_a_killed_holder_is_replaced_while_the_worker_lives(host: Host) -> None:
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)
    (holder,) = holders_of(host.directory)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(LIMIT_S)
    rows.look(now_s=1000.0)
    successor = host.worker()
    successor.open()
    successor.write_back(for_good=True)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]


def test_rows_are_lost_with_worker_and_holder(host: Host) -> None:
    rows = host.worker()
    rows.open()
    (holder,) = holders_of(host.directory)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(LIMIT_S)
    with pytest.raises(ModelLostError, match="no process holds the model in memory of GPU GPU-7"):
        host.worker()
    assert write_back(host.directory) == MODEL_LOST


def test_rows_are_lost_for_a_worker_with_another_gpu(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.worker().open()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8")
    with pytest.raises(ModelLostError, match="GPU GPU-7, and this worker has GPU GPU-8"):
        host.worker()


def test_a_worker_without_a_gpu_does_not_use_rows_that_are_away(host: Host) -> None:
    ArenaResidence(host.directory).write_back(for_good=True)
    host.worker().open()
    with pytest.raises(ModelLostError, match="no worker has this GPU any more"):
        ArenaResidence(host.directory)


def test_a_process_of_its_own_writes_rows_back(host: Host) -> None:
    """When the worker is dead. The record has the version from before the copy: later commits are not in it."""
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)
    assert write_back(host.directory) == 0
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]
    assert host.away is not None and host.away.written_version == DenseStore(host.arena).version()
    successor = host.worker()
    successor.open()
    host.train(successor, 10.0)
    successor.write_back(for_good=True)
    assert host.rows() == [21.0, 22.0, 23.0, 24.0]
    assert write_back(host.directory) == 0


def test_memory_that_cannot_be_mapped_is_lost(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.worker().open()

    def refused(*_: object, **__: object) -> None:
        raise GpuMemoryError("cuMemImportFromShareableHandle failed with CUDA_ERROR_INVALID_DEVICE")

    monkeypatch.setattr(resident_model, "mapped", refused)
    with pytest.raises(ModelLostError, match="cannot be used: cuMemImport"):
        host.worker()
