"""A store that pyarrow reads: S3, Google Cloud Storage, Azure, HDFS."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from elastichost.datasets.sources.transports.addressed_file import version_of_tag

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

__all__ = ["ArrowStore"]

MOST_OPEN = 64  # files whose size is known; they hold no connection
TAGS = ("ETag", "VersionId", "Last-Modified")


class ArrowStore:
    """Usable by several threads: a read names its place. base: the path of the bucket in the file system.
    ends_by_itself: its calls end when no byte arrives for a while."""

    def __init__(self, files: FileSystem, base: str, *, ends_by_itself: bool) -> None:
        self._files, self._base, self.ends_by_itself = files, base.rstrip("/"), ends_by_itself
        self._lock = threading.Lock()
        self._open: OrderedDict[str, pa.NativeFile] = OrderedDict()

    def stat(self, key: str) -> tuple[int, int]:
        """(size in bytes, version or 0), as the store says now. Raises OSError."""
        file = self._opened(key)
        told = {_text(name): _text(value) for name, value in (file.metadata() or {}).items()}
        tag = next((told[name] for name in TAGS if told.get(name)), "")
        if tag:
            return file.size(), version_of_tag(tag)
        return file.size(), self._files.get_file_info(self._path(key)).mtime_ns or 0

    def read(self, key: str, start: int, stop: int) -> bytes:
        """The bytes; fewer where the file is shorter. Raises OSError."""
        with self._lock:
            file = self._open.get(key)
        found: bytes = (file or self._opened(key)).read_at(stop - start, start)
        return found

    def has_root(self) -> bool:
        """Whether the bucket is there. Raises OSError."""
        from pyarrow.fs import FileType

        return not self._base or bool(self._files.get_file_info(self._base).type == FileType.Directory)

    def keys(self, folder: str, *, is_deep: bool) -> Iterator[str]:
        """The files below a folder ("": the bucket). Raises OSError."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._path(folder) or "/", recursive=is_deep, allow_not_found=bool(folder))
        for found in self._files.get_file_info(selector):
            if found.type == FileType.File:
                yield found.path.removeprefix(self._base).lstrip("/")

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}".rstrip("/")

    def _opened(self, key: str) -> pa.NativeFile:
        file = self._files.open_input_file(self._path(key))
        with self._lock:
            self._open[key] = file
            self._open.move_to_end(key)
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return file


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
