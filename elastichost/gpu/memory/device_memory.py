"""Memory of a GPU that outlives the process that made it.

It is memory of the driver's virtual memory management: file descriptors carry it to other processes, and it exists as
long as one process has it mapped or holds a descriptor, also a process that never uses the GPU. Measured on one H200:
it survived the SIGKILL of all CUDA processes in 4 of 4 variants (`benchmarks.gpu.probes.crash_survival`). Memory that
`cudaMalloc` gives, also through `cudaIpcMemHandle`, ends with the process that made it.

In Triton's interpreter an anonymous file (memfd) stands for the GPU's memory, under the same rules.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
from collections.abc import Sequence
from typing import Any, Protocol

from elastichost.errors import GpuMemoryError

__all__ = ["DeviceMemory", "DriverMemory", "FileMemory", "memory_of", "pieces_of"]

PIECE_BYTES = 1 << 30  # of one descriptor
GRANULE_BYTES = 2 << 20  # the driver maps whole pages of this size
HINTS = {
    "cuMemCreate": 'the model may not fit the GPU: set resources.model_memory = "host", or use smaller tables; '
    "`elastichost clean` frees the memory of runs whose processes were all killed"
}


def pieces_of(size_bytes: int) -> tuple[int, ...]:
    """The sizes of the pieces that hold so many bytes, each of whole pages of the driver."""
    whole = max(GRANULE_BYTES, -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES)
    full, rest = divmod(whole, PIECE_BYTES)
    return (*[PIECE_BYTES] * full, *([rest] if rest else []))


class DeviceMemory(Protocol):
    """Pieces of memory of a GPU, mapped one behind the other at `address`. sizes: of the pieces, in bytes."""

    address: int
    sizes: tuple[int, ...]

    def descriptors(self) -> list[int]:
        """A new file descriptor for each piece, which the caller closes."""
        ...

    def fill(self, offset: int, source: int, size_bytes: int) -> None:
        """Copies memory of the host at address `source` into it. Returns when it is copied."""
        ...

    def read(self, offset: int, target: int, size_bytes: int) -> None:
        """Copies a part of it to memory of the host at address `target`. Returns when it is copied."""
        ...

    def close(self) -> None:
        """Unmaps it. It is freed when no other process has it."""
        ...


class DriverMemory:
    """Implements `DeviceMemory` with the CUDA driver, on device 0 of this process.

    descriptors: of the pieces that another process made, in order; they stay the caller's. None: makes the memory.
    Raises GpuMemoryError with the driver's error."""

    def __init__(self, sizes: Sequence[int], descriptors: Sequence[int] | None = None) -> None:
        try:
            self._driver: Any = importlib.import_module("cuda.bindings.driver")
        except ModuleNotFoundError as error:
            raise GpuMemoryError(f"{error}", hint="pip install cuda-bindings") from error
        self._call("cuInit", 0)
        device = self._call("cuDeviceGet", 0)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", device))  # the context that torch uses
        self.sizes = tuple(sizes)
        self._handles: list[Any] = []
        self.address = int(self._call("cuMemAddressReserve", sum(sizes), 0, 0, 0))
        self._mapped = 0
        try:
            for number, size in enumerate(self.sizes):
                given = None if descriptors is None else descriptors[number]
                self._add(size, given)
        except GpuMemoryError:
            self.close()
            raise

    def _add(self, size: int, descriptor: int | None) -> None:
        if descriptor is None:
            handle = self._call("cuMemCreate", size, self._properties(), 0)
        else:
            handle = self._call("cuMemImportFromShareableHandle", descriptor, self._descriptor_kind())
        self._handles.append(handle)
        at = self.address + self._mapped
        self._call("cuMemMap", at, size, 0, handle, 0)
        self._mapped += size
        access = self._driver.CUmemAccessDesc()
        access.location = self._location()
        access.flags = self._driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._call("cuMemSetAccess", at, size, [access], 1)

    def descriptors(self) -> list[int]:
        """Implements `DeviceMemory.descriptors`."""
        kind = self._descriptor_kind()
        return [int(self._call("cuMemExportToShareableHandle", handle, kind, 0)) for handle in self._handles]

    def fill(self, offset: int, source: int, size_bytes: int) -> None:
        """Implements `DeviceMemory.fill`."""
        self._call("cuMemcpyHtoD", self.address + offset, source, size_bytes)
        self._call("cuCtxSynchronize")  # the last part of pageable memory may still be on its way

    def read(self, offset: int, target: int, size_bytes: int) -> None:
        """Implements `DeviceMemory.read`."""
        self._call("cuMemcpyDtoH", target, self.address + offset, size_bytes)

    def close(self) -> None:
        """Implements `DeviceMemory.close`."""
        at = self.address
        for size, _ in zip(self.sizes, self._handles, strict=False):
            if at < self.address + self._mapped:
                self._call("cuMemUnmap", at, size)
                at += size
        for handle in self._handles:
            self._call("cuMemRelease", handle)
        if self.address:
            self._call("cuMemAddressFree", self.address, sum(self.sizes))
        self._handles, self._mapped, self.address = [], 0, 0

    def _call(self, function: str, *arguments: Any) -> Any:
        code, *values = getattr(self._driver, function)(*arguments)
        if int(code) != 0:
            raise GpuMemoryError(f"{function} failed with {getattr(code, 'name', code)}", hint=HINTS.get(function, ""))
        return values[0] if len(values) == 1 else tuple(values) if values else None

    def _properties(self) -> Any:
        properties = self._driver.CUmemAllocationProp()
        properties.type = self._driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = self._location()
        properties.requestedHandleTypes = self._descriptor_kind()
        return properties

    def _location(self) -> Any:
        location = self._driver.CUmemLocation()
        location.type = self._driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = 0
        return location

    def _descriptor_kind(self) -> Any:
        return self._driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class FileMemory:
    """Implements `DeviceMemory` with anonymous files, for Triton's interpreter. Raises GpuMemoryError."""

    def __init__(self, sizes: Sequence[int], descriptors: Sequence[int] | None = None) -> None:
        self.sizes = tuple(sizes)
        self._files = [os.dup(one) for one in descriptors] if descriptors is not None else _made(sizes)
        self._room = mmap.mmap(-1, sum(sizes) + GRANULE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        self.address = at = -(-begin // GRANULE_BYTES) * GRANULE_BYTES
        for file, size in zip(self._files, sizes, strict=True):
            _map_at(at, size, file)
            at += size

    def descriptors(self) -> list[int]:
        """Implements `DeviceMemory.descriptors`."""
        return [os.dup(file) for file in self._files]

    def fill(self, offset: int, source: int, size_bytes: int) -> None:
        """Implements `DeviceMemory.fill`."""
        ctypes.memmove(self.address + offset, source, size_bytes)

    def read(self, offset: int, target: int, size_bytes: int) -> None:
        """Implements `DeviceMemory.read`."""
        ctypes.memmove(target, self.address + offset, size_bytes)

    def close(self) -> None:
        """Implements `DeviceMemory.close`. The addresses stay mapped until the process ends."""
        for file in self._files:
            os.close(file)
        self._files = []


def _made(sizes: Sequence[int]) -> list[int]:
    made = []
    for size in sizes:
        file = os.memfd_create("elastichost-gpu-rows")
        os.ftruncate(file, size)
        made.append(file)
    return made


def _map_at(address: int, size_bytes: int, file: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    fixed = 0x10  # MAP_FIXED: within the range that this process has reserved
    found = library.mmap(address, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed, file, 0)
    if found != address:
        raise GpuMemoryError(f"mmap of {size_bytes} bytes failed: {os.strerror(ctypes.get_errno())}")


def memory_of(*, is_cuda: bool, size_bytes: int, descriptors: Sequence[int] | None = None) -> DeviceMemory:
    """Memory for so many bytes: new, or that of these descriptors, which stay the caller's. is_cuda: False in Triton's
    interpreter. Raises GpuMemoryError."""
    make = DriverMemory if is_cuda else FileMemory
    return make(pieces_of(size_bytes), descriptors)
