"""Simulated shared memory: the arena's files are arrays that outlive the simulated processes."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from elastichost.arena.layout import HEADER_WORDS, ArenaLayout
from elastichost.arena.memory_board import UNLIMITED, MemoryBoard
from elastichost.specs import ModelSpec
from tests.simulation.world import active

__all__ = ["ARENA", "Memory", "MemoryFile", "MemoryPath", "SimArena"]

MOST_BYTES = 1 << 17


@dataclass
class Memory:
    """The files of one host, by path; the layout of its one arena; the headers of its buckets, by (table, bucket)."""

    files: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    headers: dict[tuple[int, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    layout: ArenaLayout | None = None


def _memory() -> Memory:
    memory = active().memory
    assert isinstance(memory, Memory)
    return memory


class MemoryPath(PurePosixPath):
    """A path into `Memory`."""

    def glob(self, pattern: str) -> list[MemoryPath]:
        prefix = f"{self}/"
        names = [path[len(prefix) :] for path in _memory().files if path.startswith(prefix)]
        return [self / name for name in fnmatch.filter(names, pattern)]

    def read_bytes(self) -> bytes:
        """Of a record that no simulated worker writes, because none has a GPU."""
        raise FileNotFoundError(str(self))


ARENA = MemoryPath("/arena")


class MemoryFile:
    """Stands for `arena.files.MappedFile`: the next process that maps the file finds the written bytes."""

    def __init__(self, path: MemoryPath, size_bytes: int) -> None:
        self.path, self.size_bytes = path, size_bytes
        files = _memory().files
        if str(path) not in files:
            files[str(path)] = np.zeros(size_bytes if path.name == "dense" else min(size_bytes, MOST_BYTES), np.uint8)
        self._bytes = files[str(path)]

    @classmethod
    def create(cls, path: MemoryPath, size_bytes: int) -> MemoryFile:
        return cls(path, size_bytes)

    attach = attach_or_create = create

    def array(self, dtype: type[Any], offset_bytes: int, count: int) -> npt.NDArray[Any]:
        """A writable view."""
        stop = offset_bytes + count * np.dtype(dtype).itemsize
        assert stop <= len(self._bytes), f"{self.path} has no byte {stop}"
        return self._bytes[offset_bytes:stop].view(dtype)

    def allocate(self, offset_bytes: int, length_bytes: int, purpose: str) -> None:
        """Does nothing: there is always enough memory."""

    def close(self) -> None:
        """Does nothing: the memory stays."""


class SimArena:
    """Stands for `arena.arena.Arena`, with dense vector and layout only; the rows are in `rows.RowBook`."""

    def __init__(self, layout: ArenaLayout) -> None:
        self.directory, self.layout = ARENA, layout
        self.model: ModelSpec = layout.model
        self.files = SimpleNamespace(dense=MemoryFile(ARENA / "dense", layout.files.dense))
        self.board = MemoryBoard(ARENA, len(layout.model.tables))  # type: ignore[arg-type]
        self.allowance = UNLIMITED

    @classmethod
    def create(cls, directory: Any, layout: ArenaLayout, *, whole: bool = True) -> SimArena:
        _memory().layout = layout
        return cls(layout)

    @classmethod
    def attach(cls, directory: Any) -> SimArena:
        layout = _memory().layout
        assert layout is not None
        return cls(layout)

    def header(self, table: int, bucket: int) -> npt.NDArray[np.int64]:
        return _memory().headers.setdefault((table, bucket), np.zeros(HEADER_WORDS, np.int64))

    def touched_bytes(self) -> int:
        return 0

    def close(self) -> None:
        """Does nothing: the memory stays."""
