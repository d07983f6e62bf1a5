"""The calls to a CUDA device that the probes need."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["COUNT", "REAL", "WORD", "CudaError", "Device"]

# Types of kernel arguments; addresses are counts.
COUNT = ctypes.c_uint64
WORD = ctypes.c_uint32
REAL = ctypes.c_double


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"{function}: {code}")
        self.function = function
        self.code = code


class Device(Protocol):
    """A device with its primary context. Sizes are bytes, addresses are integers, every method raises CudaError."""

    def attribute(self, name: str) -> int:
        """Returns a device attribute by its name without CU_DEVICE_ATTRIBUTE_."""

    def memory_info(self) -> tuple[int, int]:
        """Returns the free and the total bytes of the device's memory."""

    def register(self, address: int, size: int, *, read_only: bool = False) -> None:
        """Page-locks host memory and maps it into the device's address space."""

    def unregister(self, address: int) -> None:
        """Undoes `register`."""

    def device_address(self, address: int) -> int:
        """Returns the device's address of registered host memory."""

    def allocate(self, size: int) -> int:
        """Returns the address of new device memory."""

    def free(self, address: int) -> None:
        """Frees what `allocate` returned."""

    def allocate_pinned(self, size: int) -> int:
        """Returns the address of new page-locked host memory."""

    def free_pinned(self, address: int) -> None:
        """Frees what `allocate_pinned` returned."""

    def copy(self, target: int, source: int, size: int, direction: str) -> None:
        """Begins a copy; the direction is "HtoD", "DtoH" or "DtoD"."""

    def clear(self, address: int, size: int) -> None:
        """Begins to write zeros; the size is a multiple of 4."""

    def launch(self, kernel: str, blocks: int, threads: int, arguments: Sequence[tuple[int | float, Any]]) -> None:
        """Begins a kernel of kernels.cu; an argument is a value and its ctypes type."""

    def synchronize(self) -> None:
        """Waits for all work of this process."""

    def timed_s(self, work: Callable[[], None]) -> float:
        """Returns the device's seconds for the work that the function begins."""

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that begins the work of the given function as one CUDA graph."""

    def create(self, size: int) -> Any:
        """Returns a handle of new device memory that a file descriptor can carry to another process."""

    def release(self, handle: Any) -> None:
        """Drops this process's handle."""

    def export(self, handle: Any) -> int:
        """Returns a file descriptor of the memory behind a handle."""

    def import_(self, descriptor: int) -> Any:
        """Returns a handle of the memory behind a file descriptor."""

    def reserve(self, size: int, hint: int) -> int:
        """Returns an address range without memory, at the hinted address if the driver grants it."""

    def free_reserved(self, address: int, size: int) -> None:
        """Gives an address range back."""

    def map(self, address: int, size: int, handle: Any) -> None:
        """Puts memory into a reserved range."""

    def set_access(self, address: int, size: int) -> None:
        """Lets kernels read and write a mapped range."""

    def unmap(self, address: int, size: int) -> None:
        """Takes memory out of a range."""
