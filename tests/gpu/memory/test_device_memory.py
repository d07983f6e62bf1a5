"""Memory that descriptors carry to another process: sizes of its pieces, copies, and what a successor finds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from elastichost.gpu.memory import device_memory
from elastichost.gpu.memory.device_memory import FileMemory, memory_of, pieces_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (1, (2 * MIB,)),
        (2 * MIB, (2 * MIB,)),
        (2 * MIB + 1, (4 * MIB,)),
        (1024 * MIB, (1024 * MIB,)),
        (2049 * MIB, (1024 * MIB, 1024 * MIB, 2 * MIB)),
    ],
)
def test_pieces_are_whole_pages_of_the_driver(size_bytes: int, expected: tuple[int, ...]) -> None:
    assert pieces_of(size_bytes) == expected


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "PIECE_BYTES", 4 * MIB)


def closed(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.usefixtures("small_pieces")
def test_a_copy_may_cross_pieces() -> None:
    memory = memory_of(is_cuda=False, size_bytes=10 * MIB)
    assert memory.sizes == (4 * MIB, 4 * MIB, 2 * MIB)
    written = np.random.default_rng(1).integers(0, 255, 6 * MIB, np.uint8)
    memory.fill(3 * MIB, written.ctypes.data, len(written))
    read = np.zeros_like(written)
    memory.read(3 * MIB, read.ctypes.data, len(read))
    assert (read == written).all()
    memory.close()


@pytest.mark.usefixtures("small_pieces")
def test_another_mapping_of_the_descriptors_is_the_same_memory() -> None:
    first = memory_of(is_cuda=False, size_bytes=6 * MIB)
    descriptors = first.descriptors()
    second = memory_of(is_cuda=False, size_bytes=6 * MIB, descriptors=descriptors)
    closed(descriptors)
    written, read = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    first.fill(5 * MIB, written.ctypes.data, written.nbytes)
    second.read(5 * MIB, read.ctypes.data, read.nbytes)
    assert (read == written).all()
    for memory in (first, second):
        memory.close()


WRITER = """
import os, socket, sys
import numpy as np
from elastichost.gpu.memory.device_memory import FileMemory
memory = FileMemory((2 << 20,))
written = np.full(1024, 7.5, np.float32)
memory.fill(4096, written.ctypes.data, written.nbytes)
with socket.socket(fileno=int(sys.argv[1])) as target:
    socket.send_fds(target, [b"x"], memory.descriptors())
os.kill(os.getpid(), 9)
"""


def test_it_outlives_the_process_that_made_it() -> None:
    here, there = socket.socketpair()
    with here, there:
        descriptor = str(there.fileno())
        done = subprocess.run([sys.executable, "-c", WRITER, descriptor], pass_fds=[there.fileno()], check=False)
        assert done.returncode == -signal.SIGKILL
        _, descriptors, _, _ = socket.recv_fds(here, 1, 4)
    memory, read = FileMemory((2 << 20,), descriptors), np.zeros(1024, np.float32)
    closed(list(descriptors))
    memory.read(4096, read.ctypes.data, read.nbytes)
    assert (read == 7.5).all()
    memory.close()
