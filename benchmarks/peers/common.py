"""The parts that all peers share: settings, and the counter of samples that the benchmark reads.

This module imports neither torch nor tensorflow.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.workload.samples import Batch, BatchFile
from benchmarks.workload.shape import ModelName, Shape

__all__ = ["Counter", "PeerMode", "PeerSettings", "endless", "enter_role", "fork_role"]

COUNTS = 8  # processes of a peer that count
MODES = 2  # elements after the counts: threads, whether it computes in bfloat16
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The settings of a peer. `counter`: the file of its `Counter`. `folder`: for its files. `threads`: of torch's
    operators, for each process. `job`: elastichost's job file (bare loop only)."""

    model: ModelName
    shape: Shape
    batch_size: int
    threads: int
    batches: str
    counter: str
    folder: str
    job: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PeerSettings:
        facts = json.loads(text)
        sizes = {name: tuple(size) if isinstance(size, list) else size for name, size in facts.pop("shape").items()}
        return cls(shape=Shape(**sizes), **facts)  # type: ignore[arg-type]

    def open_batches(self) -> BatchFile:
        return BatchFile(Path(self.batches), self.shape, self.batch_size)


@dataclass(frozen=True, slots=True)
class PeerMode:
    """How a peer computes. threads: of torch's operators, for each process. is_bfloat16: under torch.autocast."""

    threads: int
    is_bfloat16: bool = False


class Counter:
    """Counts trained samples in shared memory. Every process writes its own element, so no lock is needed.

    The same file tells the peer its mode. So one peer, with one set of tables, is measured in several modes.
    """

    def __init__(self, path: Path) -> None:
        values = np.memmap(path, dtype=np.int64, mode="r+", shape=(COUNTS + MODES,))
        self._counts, self._mode = values[:COUNTS], values[COUNTS:]

    @classmethod
    def create(cls, path: Path, mode: PeerMode) -> Counter:
        np.zeros(COUNTS + MODES, dtype=np.int64).tofile(path)
        made = cls(path)
        made.set_mode(mode)
        return made

    @property
    def mode(self) -> PeerMode:
        return PeerMode(int(self._mode[0]), bool(self._mode[1]))

    def set_mode(self, mode: PeerMode) -> None:
        """Sets the mode; the peer takes it at its next step."""
        self._mode[:] = mode.threads, mode.is_bfloat16

    def add(self, slot: int, samples: int) -> None:
        self._counts[slot] += samples

    def total(self) -> int:
        return int(self._counts.sum())


def endless(batches: BatchFile, first: int = 0, step: int = 1) -> Iterator[Batch]:
    """Yields the batches first, first + step, ... again and again."""
    kept = [batches[number] for number in range(first, len(batches), step)]
    while True:
        yield from kept


def enter_role(role: str) -> None:
    """Sets the name of this process, which `ps` and the benchmark read; the kernel then kills it with its parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, role.encode()[:15], 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


@contextlib.contextmanager
def fork_role(role: str) -> Iterator[bool]:
    """Forks. The body runs in both processes, with True in the new one, which ends after the body.

    Call it before any computation, because the threads of a pool do not survive a fork.
    """
    parent = os.getpid()
    child = os.fork() == 0
    if not child:
        yield False
        return
    code = 1
    try:
        enter_role(role)
        if os.getppid() != parent:
            return
        yield True
        code = 0
    finally:
        if code:
            import traceback

            traceback.print_exc()
        os._exit(code)
