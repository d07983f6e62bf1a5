"""A store that fsspec reads, where the package of its scheme is installed (gcsfs, adlfs, huggingface_hub, ...)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from elastichost.datasets.sources.transports.addressed_file import version_of_tag

__all__ = ["FsspecStore"]

# what info() of a file may hold that differs when the file was changed, the surest first
TAGS = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "modified", "updated", "created")


class FsspecStore:
    """Usable by several threads. files: an fsspec file system; base: the path of the bucket in it. One that is not
    asynchronous may have a single connection, as that for FTP has, so it gets one call at a time."""

    ends_by_itself = False

    def __init__(self, files: Any, base: str) -> None:
        self._files, self._base = files, base.rstrip("/")
        is_shared = bool(getattr(files, "async_impl", False))
        self._turn: contextlib.AbstractContextManager[Any] = contextlib.nullcontext() if is_shared else threading.Lock()

    def stat(self, key: str) -> tuple[int, int]:
        """(size in bytes, version or 0), as the store says now."""
        with self._turn:
            self._files.invalidate_cache()
            found = self._files.info(self._path(key))
        if found.get("type") == "directory":
            raise FileNotFoundError(key)
        tag = next((str(found[name]) for name in TAGS if found.get(name)), "")
        return int(found["size"]), version_of_tag(tag) if tag else 0

    def read(self, key: str, start: int, stop: int) -> bytes:
        """The bytes; fewer where the file is shorter."""
        with self._turn:
            return bytes(self._files.cat_file(self._path(key), start=start, end=stop))

    def has_root(self) -> bool:
        """Whether the bucket is there."""
        with self._turn:
            return not self._base or bool(self._files.exists(self._base))

    def keys(self, folder: str, *, is_deep: bool) -> Iterator[str]:
        """The files below a folder ("": the bucket)."""
        with self._turn:
            self._files.invalidate_cache()
            found = self._files.find(self._path(folder), maxdepth=None if is_deep else 1)
        for path in found:
            yield str(path).removeprefix(self._base).lstrip("/")

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}".rstrip("/")
