"""A checkpoint waits until rows in memory of a GPU are written back."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from elastichost.arena.recovery.device_residence import NEVER
from elastichost.errors import CheckpointError, ModelLostError
from elastichost.supervisor.launch.write_back import PROGRAM, WriteBack
from tests.gpu.memory.test_held_memory import LIMIT_S, holders_of
from tests.worker.gpu.test_resident_model import Host, host

__all__ = ["host"]


@pytest.fixture
def failures() -> list[CheckpointError]:
    return []


@pytest.fixture
def waiting(host: Host, tmp_path: Path, failures: list[CheckpointError]) -> Iterator[WriteBack]:
    made = WriteBack(host.directory, lambda: 0, tmp_path, failures.append)  # version 0: never filled
    yield made
    made.cancel()


def looked(waiting: WriteBack, called: Sequence[object]) -> None:
    ends_s = time.monotonic() + LIMIT_S
    while not called:
        assert time.monotonic() < ends_s
        waiting.look()
        select.select([], [], [], 0.02)


def trained(host: Host) -> None:
    """A worker that was killed after a batch."""
    rows = host.worker()
    rows.open()
    host.train(rows, 10.0)


def test_rows_in_the_arena_are_not_waited_for(waiting: WriteBack) -> None:
    called: list[str] = []
    waiting.when_written(lambda: called.append("now"))
    assert called == ["now"]


def test_a_checkpoint_goes_on_when_the_rows_are_written_back(host: Host, waiting: WriteBack) -> None:
    trained(host)
    called: list[str] = []
    waiting.when_written(lambda: called.append("later"))
    assert called == []
    looked(waiting, called)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]
    waiting.look()
    assert called == ["later"]


def test_rows_without_a_holder_are_lost(host: Host, waiting: WriteBack) -> None:
    trained(host)
    (holder,) = holders_of(host.directory)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(LIMIT_S)
    called: list[str] = []
    waiting.when_written(lambda: called.append("never"))
    with pytest.raises(ModelLostError, match="no process holds the model in memory of GPU GPU-7"):
        looked(waiting, called)
    waiting.look()
    assert called == []


def test_an_abandoned_checkpoint_is_not_called_back(host: Host, waiting: WriteBack) -> None:
    trained(host)
    called: list[str] = []
    waiting.when_written(lambda: called.append("never"))
    waiting.cancel()
    waiting.look()
    assert called == []
    waiting.when_written(lambda: called.append("again"))
    looked(waiting, called)
    assert called == ["again"]


def test_a_batch_that_was_committed_meanwhile_is_fetched_too(host: Host, tmp_path: Path) -> None:
    trained(host)
    versions = iter([2, 2, 0])
    failures, called = list[CheckpointError](), list[str]()
    waiting = WriteBack(host.directory, lambda: next(versions), tmp_path, failures.append)
    waiting.when_written(lambda: called.append("later"))
    looked(waiting, called)
    assert called == ["later"]
    assert not list(versions)


def test_a_process_that_is_killed_loses_no_model(
    host: Host, waiting: WriteBack, failures: list[CheckpointError]
) -> None:
    """The checkpoint is taken again later."""
    trained(host)
    called: list[str] = []
    waiting.when_written(lambda: called.append("never"))
    assert waiting._process is not None
    waiting._process.kill()
    waiting._process.wait()
    waiting.look()
    assert called == []
    assert "ended with code -9" in failures[0].message
    waiting.when_written(lambda: called.append("again"))
    looked(waiting, called)
    assert host.rows() == [11.0, 12.0, 13.0, 14.0]


def test_a_gpu_that_cannot_be_used_now_loses_no_model(
    host: Host, waiting: WriteBack, failures: list[CheckpointError], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(host)
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # so it looks for a GPU, which is not there
    waiting.when_written(lambda: None)
    looked(waiting, failures)
    assert "cuda" in failures[0].message


def test_a_process_that_cannot_be_started_loses_no_model(
    host: Host, tmp_path: Path, failures: list[CheckpointError]
) -> None:
    trained(host)
    waiting = WriteBack(host.directory, lambda: 0, tmp_path / "gone", failures.append)
    waiting.when_written(lambda: None)
    assert "cannot be written back" in failures[0].message


def test_a_process_whose_supervisor_has_died_touches_nothing(host: Host) -> None:
    trained(host)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", PROGRAM, str(host.directory), "1"]  # not the pid of this process
    assert subprocess.run(command, env=environment, check=False).returncode == 1
    assert host.rows() == [1.0, 2.0, 3.0, 4.0]
    assert host.away is not None and host.away.written_version == NEVER
