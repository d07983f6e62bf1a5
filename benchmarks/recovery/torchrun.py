"""The peer of the recovery benchmark: torchrun with two ranks, one of which is killed again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.processes import end_processes, tree_of
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.peers.torchrun_elastic import INCARNATIONS, STEP

__all__ = ["PeerHurt", "killed_ranks"]

MODULE = "benchmarks.peers.torchrun_elastic"
RANKS = 2
BATCH_SIZE, ROWS, CHECKPOINT_STEPS = 512, 100_000, 50
TRAIN_S = 3.0  # least time of training between two kills
LIMIT_S = 60.0
POLL_S = 0.002


class PeerHurt(msgspec.Struct, frozen=True):
    """One kill: seconds until all ranks train again (None: not within LIMIT_S, so that torchrun had to be started
    again), and the number of steps that were repeated."""

    back_s: float | None
    steps_lost: int


class _StuckError(Exception):
    """The ranks do not train."""


def killed_ranks(workshop: Workshop) -> Generator[PeerHurt, None, None]:
    """Kills one rank each time it is advanced, without end; close the generator to end torchrun. Raises RuntimeError if
    torchrun does not train at all."""
    marks_path, number = workshop.memory / "marks", 0
    with (workshop.disk / "torchrun.log").open("w+") as log:
        while True:
            np.zeros(8, dtype=np.int64).tofile(marks_path)
            marks: npt.NDArray[np.int64] = np.memmap(marks_path, dtype=np.int64, mode="r", shape=(8,))
            process = _start(workshop, marks_path, log)
            is_back = True
            try:
                while is_back:
                    _wait_training(process, marks)
                    hurt = _kill(process, marks, number)
                    is_back, number = hurt.back_s is not None, number + 1
                    yield hurt
            except _StuckError as error:
                log.seek(0)
                raise RuntimeError(f"torchrun does not train: {error}\n{log.read()[-4000:]}") from error
            finally:
                end_processes([one.pid for one in tree_of(process.pid)])
                process.wait()


def _start(workshop: Workshop, marks: Path, log: IO[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"),
            *("--max-restarts=1000000", "-m", MODULE, str(marks), str(workshop.disk / "torchrun.pt")),
            *(str(BATCH_SIZE), str(ROWS), str(CHECKPOINT_STEPS)),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**workshop.environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )


def _wait_training(process: subprocess.Popen[bytes], marks: npt.NDArray[np.int64]) -> None:
    """Waits until all ranks train and a checkpoint is written. Raises _StuckError."""
    _wait(process, lambda: bool((marks[INCARNATIONS : INCARNATIONS + RANKS] > 0).all()))
    step = int(marks[STEP])
    _wait(process, lambda: bool(marks[STEP] > step + CHECKPOINT_STEPS))
    time.sleep(TRAIN_S)


def _kill(process: subprocess.Popen[bytes], marks: npt.NDArray[np.int64], number: int) -> PeerHurt:
    incarnations, step = marks[INCARNATIONS : INCARNATIONS + RANKS].copy(), int(marks[STEP])
    victim = _ranks(process.pid)[number % RANKS]
    struck_s = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    try:
        _wait(process, lambda: bool((marks[INCARNATIONS : INCARNATIONS + RANKS] > incarnations).all()))
    except _StuckError:
        return PeerHurt(None, step % CHECKPOINT_STEPS)
    return PeerHurt(time.monotonic() - struck_s, max(0, step - int(marks[STEP])))


def _ranks(root: int) -> list[int]:
    """The pids of the training processes, in order."""
    found = []
    for one in tree_of(root):
        words = Path(f"/proc/{one.pid}/cmdline").read_bytes().split(b"\0")
        if one.pid != root and MODULE.encode() in words:
            found.append(one.pid)
    return sorted(found)


def _wait(process: subprocess.Popen[bytes], is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_true():
        if process.poll() is not None:
            raise _StuckError(f"torchrun ended with exit code {process.returncode}")
        if time.monotonic() > deadline_s:
            raise _StuckError(f"no progress for {LIMIT_S:g} s")
        time.sleep(POLL_S)
