"""The CUDA driver through cuda.bindings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.device.interface import CudaError

__all__ = ["CudaDevice", "driver_module"]

PORTABLE, DEVICEMAP, READ_ONLY = 1, 2, 8  # CU_MEMHOSTREGISTER_*


def driver_module() -> Any:
    """Returns cuda.bindings.driver, which carries no types."""
    import importlib

    return importlib.import_module("cuda.bindings.driver")


class CudaDevice:
    """Device 0 and its primary context. `cubin` holds the compiled kernels."""

    def __init__(self, cubin: Path | None = None) -> None:
        self._driver = driver_module()
        self._call("cuInit", 0)
        self._device = self._call("cuDeviceGet", 0)
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._call("cuCtxSetCurrent", self._context)
        self._stream = self._call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._functions: dict[str, Any] = {}
        self._graphs: list[Any] = []
        self._module = None if cubin is None else self._call("cuModuleLoadData", cubin.read_bytes())

    def _call(self, function: str, *arguments: Any) -> Any:
        """Returns what the driver's function returns beside its code: nothing, a value, or a tuple."""
        code, *values = getattr(self._driver, function)(*arguments)
        if int(code) != 0:
            raise CudaError(function, getattr(code, "name", str(code)))
        return values[0] if len(values) == 1 else tuple(values) if values else None

    def attribute(self, name: str) -> int:
        """Returns a device attribute by its name without CU_DEVICE_ATTRIBUTE_."""
        kind = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", kind, self._device))

    def memory_info(self) -> tuple[int, int]:
        """Returns the free and the total bytes of the device's memory."""
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def register(self, address: int, size: int, *, read_only: bool = False) -> None:
        """Page-locks host memory and maps it into the device's address space."""
        flags = PORTABLE | DEVICEMAP | (READ_ONLY if read_only else 0)
        self._call("cuMemHostRegister", address, size, flags)

    def unregister(self, address: int) -> None:
        """Undoes `register`."""
        self._call("cuMemHostUnregister", address)

    def device_address(self, address: int) -> int:
        """Returns the device's address of registered host memory."""
        return int(self._call("cuMemHostGetDevicePointer", address, 0))

    def allocate(self, size: int) -> int:
        """Returns the address of new device memory."""
        return int(self._call("cuMemAlloc", size))

    def free(self, address: int) -> None:
        """Frees what `allocate` returned."""
        self._call("cuMemFree", address)

    def allocate_pinned(self, size: int) -> int:
        """Returns the address of new page-locked host memory."""
        return int(self._call("cuMemHostAlloc", size, PORTABLE))

    def free_pinned(self, address: int) -> None:
        """Frees what `allocate_pinned` returned."""
        self._call("cuMemFreeHost", address)

    def copy(self, target: int, source: int, size: int, direction: str) -> None:
        """Begins a copy; the direction is "HtoD", "DtoH" or "DtoD"."""
        self._call(f"cuMemcpy{direction}Async", target, source, size, self._stream)

    def clear(self, address: int, size: int) -> None:
        """Begins to write zeros; the size is a multiple of 4."""
        self._call("cuMemsetD32Async", address, 0, size // 4, self._stream)

    def launch(self, kernel: str, blocks: int, threads: int, arguments: Sequence[tuple[int | float, Any]]) -> None:
        """Begins a kernel of kernels.cu; an argument is a value and its ctypes type."""
        if kernel not in self._functions:
            self._functions[kernel] = self._call("cuModuleGetFunction", self._module, kernel.encode())
        values, types = tuple(value for value, _ in arguments), tuple(kind for _, kind in arguments)
        function = self._functions[kernel]
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, self._stream, (values, types), 0)

    def synchronize(self) -> None:
        """Waits for all work of this process."""
        self._call("cuStreamSynchronize", self._stream)

    def timed_s(self, work: Callable[[], None]) -> float:
        """Returns the device's seconds for the work that the function begins."""
        begin, end = self._call("cuEventCreate", 0), self._call("cuEventCreate", 0)
        self._call("cuEventRecord", begin, self._stream)
        work()
        self._call("cuEventRecord", end, self._stream)
        self._call("cuEventSynchronize", end)
        elapsed_ms = float(self._call("cuEventElapsedTime", begin, end))
        for event in (begin, end):
            self._call("cuEventDestroy", event)
        return elapsed_ms / 1000

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that begins the work of the given function as one CUDA graph."""
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call("cuStreamBeginCapture", self._stream, mode)
        work()
        graph = self._call("cuStreamEndCapture", self._stream)
        executable = self._call("cuGraphInstantiate", graph, 0)
        self._graphs += [graph, executable]  # they live as long as this object
        return lambda: self._call("cuGraphLaunch", executable, self._stream)

    def create(self, size: int) -> Any:
        """Returns a handle of new device memory that a file descriptor can carry to another process."""
        properties = self._driver.CUmemAllocationProp()
        properties.type = self._driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = self._location()
        properties.requestedHandleTypes = self._descriptor_kind()
        return self._call("cuMemCreate", size, properties, 0)

    def release(self, handle: Any) -> None:
        """Drops this process's handle."""
        self._call("cuMemRelease", handle)

    def export(self, handle: Any) -> int:
        """Returns a file descriptor of the memory behind a handle."""
        return int(self._call("cuMemExportToShareableHandle", handle, self._descriptor_kind(), 0))

    def import_(self, descriptor: int) -> Any:
        """Returns a handle of the memory behind a file descriptor."""
        return self._call("cuMemImportFromShareableHandle", descriptor, self._descriptor_kind())

    def reserve(self, size: int, hint: int) -> int:
        """Returns an address range without memory, at the hinted address if the driver grants it."""
        return int(self._call("cuMemAddressReserve", size, 0, hint, 0))

    def free_reserved(self, address: int, size: int) -> None:
        """Gives an address range back."""
        self._call("cuMemAddressFree", address, size)

    def map(self, address: int, size: int, handle: Any) -> None:
        """Puts memory into a reserved range."""
        self._call("cuMemMap", address, size, 0, handle, 0)

    def set_access(self, address: int, size: int) -> None:
        """Lets kernels read and write a mapped range."""
        access = self._driver.CUmemAccessDesc()
        access.location = self._location()
        access.flags = self._driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._call("cuMemSetAccess", address, size, [access], 1)

    def unmap(self, address: int, size: int) -> None:
        """Takes memory out of a range."""
        self._call("cuMemUnmap", address, size)

    def _location(self) -> Any:
        location = self._driver.CUmemLocation()
        location.type = self._driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = 0
        return location

    def _descriptor_kind(self) -> Any:
        return self._driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
