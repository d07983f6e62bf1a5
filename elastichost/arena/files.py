"""One mapped file of the arena: shared and sparse. Its pages are allocated before any process touches them.

A process that touches an unallocated page of a full tmpfs is killed by SIGBUS. So each range is allocated by
`fallocate` before it is used, and a full file system raises `ArenaFullError`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from elastichost.errors import ArenaError, ArenaFullError

__all__ = ["ALIGNMENT_BYTES", "MORE_ROOM", "MappedFile", "aligned"]

ALIGNMENT_BYTES = 64  # alignment of arrays that follow one another in a file: one cache line

# Hint for a file system that is too small for the arena.
MORE_ROOM = (
    "enlarge it (`docker run --shm-size=8g ...`, `mount -o remount,size=8G /dev/shm`), free some of it, or set "
    "ELASTICHOST_ARENA_DIR to a directory with more room"
)

_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2


def _huge_page_bytes(told: Path = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")) -> int:
    """Size of a huge page: 2 MiB on x86, 32 or 512 MiB on ARM with large pages."""
    try:
        return int(told.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 2 << 20  # the kernel has no huge pages: madvise fails, which `prefer_huge_pages` ignores


HUGE_PAGE_BYTES = _huge_page_bytes()

Scalar = TypeVar("Scalar", bound=np.generic)


def _load_fallocate() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    function.restype = ctypes.c_int
    return function


_fallocate = _load_fallocate()


class MappedFile:
    """A sparse file of fixed virtual size, mapped shared and writable."""

    def __init__(self, path: Path, descriptor: int, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    @classmethod
    def create(cls, path: Path, size_bytes: int) -> MappedFile:
        """Makes a sparse file of zeros (mode 0600) and maps it. Raises ArenaError when the file exists, or when the
        file system cannot make it."""
        return cls._open(path, os.O_CREAT | os.O_EXCL, size_bytes)

    @classmethod
    def attach(cls, path: Path, size_bytes: int) -> MappedFile:
        """Maps an existing file. Raises ArenaError when it is missing or has another size."""
        return cls._open(path, 0, size_bytes)

    @classmethod
    def attach_or_create(cls, path: Path, size_bytes: int) -> MappedFile:
        """Maps a file that only this process uses, and makes it if it is missing. A predecessor that was killed while
        making it may have left an empty file, which is replaced. Raises ArenaError when the file has another size, or
        when the file system cannot make it."""
        if path.exists() and path.stat(follow_symlinks=False).st_size == 0:
            path.unlink()
        return cls._open(path, 0 if path.exists() else os.O_CREAT | os.O_EXCL, size_bytes)

    @classmethod
    def _open(cls, path: Path, flags: int, size_bytes: int) -> MappedFile:
        try:
            descriptor = os.open(path, flags | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ArenaError(f"cannot open {path}: {error}") from error
        try:
            if flags:
                os.ftruncate(descriptor, size_bytes)
            actual_bytes = os.fstat(descriptor).st_size
            if actual_bytes != size_bytes:
                raise ArenaError(f"{path} has {actual_bytes} bytes; the layout requires {size_bytes}")
            return cls(path, descriptor, size_bytes)
        except OSError as error:
            os.close(descriptor)
            raise ArenaError(f"cannot map {path} ({size_bytes} bytes, sparse): {error}") from error
        except ArenaError:
            os.close(descriptor)
            raise

    def array(self, dtype: type[Scalar], offset_bytes: int, count: int) -> npt.NDArray[Scalar]:
        """A writable 1-D view of `count` elements."""
        return np.frombuffer(self._map, dtype=dtype, count=count, offset=offset_bytes)

    def allocate(self, offset_bytes: int, length_bytes: int, purpose: str) -> None:
        """Allocates the pages of a range, so that processes can touch them. Raises ArenaFullError, which names
        `purpose` and the bytes."""
        if length_bytes <= 0:
            return
        try:
            os.posix_fallocate(self._descriptor, offset_bytes, length_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise ArenaError(f"cannot allocate {length_bytes} bytes of {self.path}: {error}") from error
            facts = os.fstatvfs(self._descriptor)
            raise ArenaFullError(
                f"{purpose} needs {length_bytes} more bytes in {self.path.parent}, "
                f"{facts.f_bavail * facts.f_frsize} are free",
                hint=MORE_ROOM,
            ) from error

    def punch(self, offset_bytes: int, length_bytes: int) -> None:
        """Frees the pages of a range, which reads as zeros afterwards. Raises ArenaError."""
        if length_bytes <= 0:
            return
        mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
        while _fallocate(self._descriptor, mode, offset_bytes, length_bytes) != 0:
            code = ctypes.get_errno()
            if code == errno.EINTR:
                continue
            if code in (errno.EOPNOTSUPP, errno.ENOSYS):
                # The file system has no holes: the pages stay allocated, but must read as zeros.
                self.array(np.uint8, offset_bytes, length_bytes)[:] = 0
                return
            raise ArenaError(f"cannot free {length_bytes} bytes of {self.path}: {os.strerror(code)}")

    def prefer_huge_pages(self, offset_bytes: int, length_bytes: int) -> None:
        """Asks for huge pages where whole ones fit into the range. Rows are read in random order, and with small pages
        a walk of the page tables costs as much as reading the row. On a host whose `shmem_enabled` is "never", as on
        most, pages stay small."""
        first = -(-offset_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        stop = (offset_bytes + length_bytes) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        if stop > first:
            with contextlib.suppress(OSError):  # the kernel was built without huge pages
                self._map.madvise(mmap.MADV_HUGEPAGE, first, stop - first)

    def touched_bytes(self) -> int:
        """Bytes that the file occupies, without its holes."""
        return os.fstat(self._descriptor).st_blocks * 512

    def close(self) -> None:
        """Unmaps the file. If a view is still in use, the mapping ends with the last view."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        # A tensor or array over the mapping keeps it alive.
        with contextlib.suppress(BufferError):
            self._map.close()


def aligned(size_bytes: int) -> int:
    """The size rounded up to the alignment of arrays: where the next array may begin."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
