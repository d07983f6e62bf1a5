"""Files on tmpfs and their mappings, by address."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Mapping", "map_file", "populate", "punch_hole", "sized_file"]

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
KEEP_SIZE, PUNCH_HOLE = 1, 2
ALIGNMENT = 2 << 20  # so that huge pages can be mapped whole
THREADS = 16


class Mapping:
    """A shared mapping of a file: `address` and `size` in bytes. It is gone when `map_file` ends."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size

    def words(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Returns the mapping as 64-bit words; nothing is copied."""
        return np.ctypeslib.as_array((ctypes.c_uint64 * (self.size // 8)).from_address(self.address))


def checked(result: int, what: str) -> None:
    """Raises OSError if a call of libc returned -1."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def sized_file(path: Path, size: int) -> Path:
    """Makes a file of that many bytes, all of it a hole, and returns its path."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


@contextmanager
def map_file(path: Path, size: int, *, writable: bool = True) -> Iterator[Mapping]:
    """Maps the first bytes of a file at an address that is a multiple of 2 MiB. Raises OSError."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    reserved = LIBC.mmap(None, size + ALIGNMENT, 0, flags, -1, 0)
    if reserved in (None, ctypes.c_void_p(-1).value):
        checked(-1, "mmap of addresses")
    address = (reserved + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        found = LIBC.mmap(address, size, protection, mmap.MAP_SHARED | 0x10, descriptor, 0)  # MAP_FIXED
        if found != address:
            checked(-1, f"mmap of {path}")
        yield Mapping(address, size)
    finally:
        os.close(descriptor)
        LIBC.munmap(reserved, size + ALIGNMENT)


def populate(mapping: Mapping) -> None:
    """Allocates every page of a writable mapping, with several threads."""
    share = max(ALIGNMENT, mapping.size // THREADS // ALIGNMENT * ALIGNMENT)

    def fill(begin: int) -> None:
        size = min(share, mapping.size - begin)
        checked(LIBC.madvise(mapping.address + begin, size, POPULATE_WRITE), "madvise(MADV_POPULATE_WRITE)")

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(fill, range(0, mapping.size, share)))


def punch_hole(path: Path, begin: int, size: int) -> None:
    """Frees the pages of a part of a file; its size stays."""
    with path.open("r+b") as file:
        checked(LIBC.fallocate(file.fileno(), KEEP_SIZE | PUNCH_HOLE, begin, size), "fallocate(PUNCH_HOLE)")
