"""The interface on host memory: it tries the order of calls, processes and kills of the probes without a GPU.

Registered memory is checked for use after `unregister` only by its bookkeeping; no figure of it means anything."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.device.host_memory import LIBC
from benchmarks.gpu.device.interface import CudaError

__all__ = ["FakeDevice"]

Words = np.ndarray[Any, np.dtype[Any]]


def array_at(address: float, count: float, kind: Any = ctypes.c_uint64) -> Words:
    """Returns memory as an array."""
    return np.ctypeslib.as_array((kind * int(count)).from_address(int(address)))


class FakeDevice:
    """A device whose memory is the host's. Kernels run at once, the endless ones in a thread."""

    def __init__(self) -> None:
        self._registered: dict[int, int] = {}
        self._buffers: dict[int, Any] = {}
        self._threads: list[threading.Thread] = []
        self._handles: set[int] = set()

    def attribute(self, name: str) -> int:
        """Returns 132 for the number of multiprocessors, else 1."""
        return 132 if name == "MULTIPROCESSOR_COUNT" else 1

    def memory_info(self) -> tuple[int, int]:
        """Returns fixed figures."""
        return 1 << 30, 1 << 30

    def register(self, address: int, size: int, *, read_only: bool = False) -> None:
        """Remembers the range. Raises CudaError if it is registered."""
        for begin, length in self._registered.items():
            if address < begin + length and begin < address + size:
                raise CudaError("cuMemHostRegister", "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED")
        self._registered[address] = size

    def unregister(self, address: int) -> None:
        """Forgets the range."""
        if self._registered.pop(address, None) is None:
            raise CudaError("cuMemHostUnregister", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED")

    def device_address(self, address: int) -> int:
        """Returns the same address, if it is registered."""
        if not any(begin <= address < begin + size for begin, size in self._registered.items()):
            raise CudaError("cuMemHostGetDevicePointer", "CUDA_ERROR_INVALID_VALUE")
        return address

    def allocate(self, size: int) -> int:
        """Returns the address of zeros."""
        buffer = ctypes.create_string_buffer(size)
        self._buffers[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def free(self, address: int) -> None:
        """Drops the buffer."""
        del self._buffers[address]

    def allocate_pinned(self, size: int) -> int:
        """As `allocate`."""
        return self.allocate(size)

    def free_pinned(self, address: int) -> None:
        """As `free`."""
        self.free(address)

    def copy(self, target: int, source: int, size: int, direction: str) -> None:
        """Copies at once."""
        assert direction in {"HtoD", "DtoH", "DtoD"}
        ctypes.memmove(target, source, size)

    def clear(self, address: int, size: int) -> None:
        """Writes zeros at once."""
        ctypes.memset(address, 0, size)

    def launch(self, kernel: str, blocks: int, threads: int, arguments: Sequence[tuple[int | float, Any]]) -> None:
        """Runs the Python function of the kernel's name."""
        for value, kind in arguments:
            kind(value)
        function = getattr(self, f"_{kernel}")
        if kernel in {"count_up", "echo_words", "keep_busy"}:
            values = [blocks, *(value for value, _ in arguments)]
            self._threads.append(threading.Thread(target=function, args=values, daemon=True))
            self._threads[-1].start()
        else:
            function(*(value for value, _ in arguments))

    def synchronize(self) -> None:
        """Waits for the threads."""
        for thread in self._threads:
            thread.join()

    def timed_s(self, work: Callable[[], None]) -> float:
        """Returns the seconds of the wall clock."""
        begin = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - begin

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """Returns the function itself."""
        return work

    def create(self, size: int) -> Any:
        """Returns the descriptor of a memfd."""
        descriptor = os.memfd_create("fake-device-memory")
        os.ftruncate(descriptor, size)
        self._handles.add(descriptor)
        return descriptor

    def release(self, handle: Any) -> None:
        """Closes the descriptor."""
        self._handles.remove(handle)
        os.close(handle)

    def export(self, handle: Any) -> int:
        """Returns a second descriptor."""
        return os.dup(handle)

    def import_(self, descriptor: int) -> Any:
        """Returns a descriptor of its own."""
        handle = os.dup(descriptor)
        self._handles.add(handle)
        return handle

    def reserve(self, size: int, hint: int) -> int:
        """Returns addresses without memory."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        return int(LIBC.mmap(hint or None, size, 0, flags, -1, 0))

    def free_reserved(self, address: int, size: int) -> None:
        """Gives an address range back."""
        assert LIBC.munmap(address, size) == 0

    def map(self, address: int, size: int, handle: Any) -> None:
        """Maps the memfd over the reserved addresses, without access."""
        assert LIBC.mmap(address, size, 0, mmap.MAP_SHARED | 0x10, handle, 0) == address

    def set_access(self, address: int, size: int) -> None:
        """Makes it readable and writable."""
        LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert LIBC.mprotect(address, size, mmap.PROT_READ | mmap.PROT_WRITE) == 0

    def unmap(self, address: int, size: int) -> None:
        """Takes the memory away."""
        assert LIBC.munmap(address, size) == 0

    def _fill_pattern(self, words: int, count: int, seed: int) -> None:
        array_at(words, count)[:] = np.arange(seed, seed + count, dtype=np.uint64)

    def _count_mismatches(self, words: int, count: int, seed: int, wrong: int) -> None:
        expected = np.arange(seed, seed + count, dtype=np.uint64)
        array_at(wrong, 1)[0] += np.count_nonzero(array_at(words, count) != expected)

    def _count_up(self, blocks: int, host: int, device: int, limit: int) -> None:
        seen, stored = array_at(host, blocks * 16), array_at(device, blocks * 16)
        end = time.monotonic_ns() + limit
        while time.monotonic_ns() < end:
            seen[::16] += 1
            stored[::16] = seen[::16]

    def _echo_words(self, _blocks: int, words: int, rounds: int, limit: int) -> None:
        array, last, end = array_at(words, 32), 0, time.monotonic_ns() + limit
        while last < rounds and time.monotonic_ns() < end:
            last = int(array[0])
            array[16] = last
            time.sleep(0)

    def _keep_busy(self, _blocks: int, _sink: int, limit: int) -> None:
        time.sleep(limit / 1e9)

    def _draw_rows(self, ids: int, count: int, rows: int, seed: int, exponent: float) -> None:
        assert exponent >= 0
        drawn = np.random.default_rng(seed).integers(0, rows, count)
        array_at(ids, count, ctypes.c_uint32)[:] = drawn

    def _gather_rows(self, table: int, ids: int, count: int, lanes: int, _sink: int) -> None:
        rows = array_at(ids, min(count, 1000), ctypes.c_uint32)
        array_at(table, (int(rows.max()) + 1) * lanes * 2).reshape(-1, lanes * 2)[rows].sum()

    def _update_rows(self, table: int, ids: int, count: int, lanes: int, _sink: int) -> None:
        rows = array_at(ids, min(count, 1000), ctypes.c_uint32)
        array_at(table, (int(rows.max()) + 1) * lanes * 2).reshape(-1, lanes * 2)[rows] += 1
