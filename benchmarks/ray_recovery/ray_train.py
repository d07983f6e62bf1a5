"""The peer of the recovery benchmark on Ray: Ray Train, of which a worker or a node is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.harness.processes import end_processes, tree_of
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.peers.ray_train_elastic import GROUPS, IS_ELASTIC, MARKS, PIDS, STEP, WORLD
from benchmarks.ray_recovery.figures import GroupHurt
from benchmarks.ray_recovery.ray_bed import RayBed

__all__ = ["RayTrain", "kill_a_worker", "training"]

MODULE = "benchmarks.peers.ray_train_elastic"
CHECKPOINT_STEPS = 50
TRAIN_S = 3.0  # least time of training before a kill
LIMIT_S = 120.0
POLL_S = 0.002


class RayTrain:
    """A running `fit` of Ray Train."""

    def __init__(self, process: subprocess.Popen[bytes], marks: npt.NDArray[np.int64], log: Callable[[], str]) -> None:
        self._process, self._marks, self._log = process, marks, log

    @property
    def is_elastic(self) -> bool:
        return bool(self._marks[IS_ELASTIC])

    @property
    def pids(self) -> list[int]:
        """The pids of the workers by rank."""
        return [int(pid) for pid in self._marks[PIDS : PIDS + self._marks[WORLD]]]

    def hurt(self, strike: Callable[[RayTrain], None]) -> GroupHurt:
        """Waits until it trains and has a checkpoint, strikes, and waits until it trains again. Raises RuntimeError."""
        self._wait(lambda: bool(self._marks[GROUPS] > 0))
        step = int(self._marks[STEP])
        self._wait(lambda: bool(self._marks[STEP] > step + CHECKPOINT_STEPS))
        time.sleep(TRAIN_S)
        groups, step = int(self._marks[GROUPS]), int(self._marks[STEP])
        struck_s = time.monotonic()
        strike(self)
        self._wait(lambda: bool(self._marks[GROUPS] > groups))
        back_s = time.monotonic() - struck_s
        return GroupHurt(back_s, int(self._marks[WORLD]), max(0, step - int(self._marks[STEP])))

    def _wait(self, is_true: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_true():
            if self._process.poll() is not None:
                raise RuntimeError(f"Ray Train ended with exit code {self._process.returncode}:\n{self._log()}")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"Ray Train did not train for {LIMIT_S:g} s:\n{self._log()}")
            time.sleep(POLL_S)


def kill_a_worker(number: int) -> Callable[[RayTrain], None]:
    """A function that kills the `number`th worker, counted in turn."""

    def strike(run: RayTrain) -> None:
        pids = run.pids
        os.kill(pids[number % len(pids)], signal.SIGKILL)

    return strike


@contextlib.contextmanager
def training(
    bed: RayBed, workshop: Workshop, name: str, batch_size: int, rows: int, most_workers: int
) -> Iterator[RayTrain]:
    """A running Ray Train; it is killed when the context is left."""
    marks_path, folder = workshop.memory / name, workshop.disk / name
    folder.mkdir()
    np.zeros(MARKS, dtype=np.int64).tofile(marks_path)
    marks: npt.NDArray[np.int64] = np.memmap(marks_path, dtype=np.int64, mode="r", shape=(MARKS,))
    log_path = folder / "log"
    numbers = map(str, (batch_size, rows, CHECKPOINT_STEPS, most_workers))
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, bed.address, str(marks_path), str(folder / "storage"), *numbers],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**bed.environment, "RAY_TRAIN_V2_ENABLED": "1", "OMP_NUM_THREADS": "1"},
        )
    try:
        yield RayTrain(process, marks, lambda: log_path.read_text(errors="replace")[-4000:])
    finally:
        end_processes([one.pid for one in tree_of(process.pid)])
        process.wait()
