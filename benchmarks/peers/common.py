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

from benchmarks.harness.criteo26 import Batch, BatchFile, ModelName

__all__ = ["SLOTS_PER_PEER", "Counter", "PeerSettings", "endless", "enter_role", "fork_role"]

SLOTS_PER_PEER = 8
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The settings of a peer. `counter`: file of int64 [8], one element for each counting process. `folder`: for its
    files. `threads`: of torch's operators, for each process. `job`: elastichost's job file (bare loop only)."""

    model: ModelName
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
        return cls(**json.loads(text))

    def open_batches(self) -> BatchFile:
        return BatchFile(Path(self.batches), self.batch_size)


class Counter:
    """Counts trained samples in shared memory. Every process writes its own element, so no lock is needed."""

    def __init__(self, path: Path) -> None:
        self._counts = np.memmap(path, dtype=np.int64, mode="r+", shape=(SLOTS_PER_PEER,))

    @classmethod
    def create(cls, path: Path) -> Counter:
        np.zeros(SLOTS_PER_PEER, dtype=np.int64).tofile(path)
        return cls(path)

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
