"""The line index of a text file: where its units begin. One pass over the file makes it; it is cached until the file
changes."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import exactly_compiled
from elastichost.datasets.files import FileStamp, cache_directory, check_unchanged, is_url, opened
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.text.first_lines import MOST_BYTES

__all__ = ["TextIndex", "index_text_file", "line_end", "read_first_line"]

CHUNK_BYTES = 4 << 20
FIRST_BYTES = 1 << 16  # of a request for the first line
BLOCK_BYTES = 256
NEWLINE = np.uint8(10)


class TextIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Byte offsets of lines of one file.

    lines    number of data lines: without the header, and without empty lines at the end of the file
    starts   byte offset of every `unit_lines`-th data line, beginning with the first one
    stop     byte offset after the last data line
    """

    path: str
    size_bytes: int
    modified_ns: int
    unit_lines: int
    header_lines: int
    lines: int
    starts: tuple[int, ...]
    stop: int

    def byte_range(self, group: int) -> tuple[int, int]:
        """The bytes [start, stop) of one unit."""
        stop = self.starts[group + 1] if group + 1 < len(self.starts) else self.stop
        return self.starts[group], stop

    def lines_of(self, group: int) -> int:
        return min(self.unit_lines, self.lines - group * self.unit_lines)


@exactly_compiled
def scan_lines(
    data: npt.NDArray[np.uint8], base: int, lines: int, unit_lines: int, starts: npt.NDArray[np.int64]
) -> tuple[int, int]:
    """Counts lines, and writes the offset after each `unit_lines`-th newline to `starts`. Returns (lines so far, number
    of starts found). `base`: offset of `data` in the file.

    In a block without the start of a unit, newlines are only counted, which LLVM compiles to vector instructions.
    """
    found = 0
    at = 0
    size = data.shape[0]
    while at < size:
        block_stop = min(at + BLOCK_BYTES, size)
        newlines = 0
        for index in range(at, block_stop):
            newlines += data[index] == NEWLINE
        if lines // unit_lines == (lines + newlines) // unit_lines:
            lines += newlines
        else:
            for index in range(at, block_stop):
                if data[index] == NEWLINE:
                    lines += 1
                    if lines % unit_lines == 0:
                        starts[found] = base + index + 1
                        found += 1
        at = block_stop
    return lines, found


@exactly_compiled
def line_end(data: npt.NDArray[np.uint8], lines: int) -> int:
    """The offset after the first `lines` lines of `data`."""
    seen = 0
    for index in range(data.shape[0]):
        if data[index] == NEWLINE:
            seen += 1
            if seen == lines:
                return index + 1
    return int(data.shape[0])


def read_first_line(file: FileStamp, waiting: RequestPolicy = BEFORE_RUN) -> bytes:
    """The first line with its line break, cut after MOST_BYTES."""
    with io.BufferedReader(opened(file, waiting), FIRST_BYTES) as reader:
        return reader.readline(MOST_BYTES)


def index_text_file(
    file: FileStamp,
    *,
    unit_lines: int,
    header_lines: int,
    environ: Mapping[str, str],
    waiting: RequestPolicy = BEFORE_RUN,
) -> tuple[TextIndex, str | None]:
    """(index, warning). The index is from the cache, or from one pass over the file, and is then cached.

    The warning is None, or the reason why the cache cannot be written. Raises DataError when the file changes during
    the pass.
    """
    path = file.path if is_url(file.path) else os.path.realpath(file.path)
    key = hashlib.sha256(f"{path}\0{unit_lines}\0{header_lines}".encode()).hexdigest()[:32]
    cached_at = cache_directory(environ) / "lines" / f"{key}.json"
    is_told = not is_url(file.path) or file.has_version  # other servers do not tell when a file has changed
    cached = _load(cached_at) if is_told else None
    if cached is not None and _is_fresh(cached, file, unit_lines, header_lines):
        return cached, None
    index = _scan(file, unit_lines, header_lines, waiting)
    check_unchanged(file)
    return index, _store(cached_at, index) if is_told else None


def _is_fresh(cached: TextIndex, file: FileStamp, unit_lines: int, header_lines: int) -> bool:
    expected = (file.path, file.size_bytes, file.modified_ns, unit_lines, header_lines)
    return expected == (cached.path, cached.size_bytes, cached.modified_ns, cached.unit_lines, cached.header_lines)


def _scan(file: FileStamp, unit_lines: int, header_lines: int, waiting: RequestPolicy) -> TextIndex:
    first = len(read_first_line(file, waiting)) if header_lines else 0
    stop, missing_break = _end_of_lines(file, first, waiting)
    starts: list[int] = [first] if stop > first else []
    lines = 0
    chunk = np.empty(CHUNK_BYTES, dtype=np.uint8)
    found_starts = np.empty(CHUNK_BYTES // unit_lines + 2, dtype=np.int64)
    at = first
    with opened(file, waiting) as handle:
        handle.seek(first)
        while at < stop:
            read = handle.readinto(chunk.data[: min(CHUNK_BYTES, stop - at)])
            if not read:
                break
            lines, found = scan_lines(chunk[:read], at, lines, unit_lines, found_starts)
            starts.extend(int(start) for start in found_starts[:found] if start < stop)
            at += read
    return TextIndex(
        path=file.path,
        size_bytes=file.size_bytes,
        modified_ns=file.modified_ns,
        unit_lines=unit_lines,
        header_lines=header_lines,
        lines=lines + int(missing_break),
        starts=tuple(starts),
        stop=stop,
    )


def _end_of_lines(file: FileStamp, first: int, waiting: RequestPolicy) -> tuple[int, bool]:
    """(offset after the last line that is not empty, whether that line has no line break)."""
    tail_bytes = min(65_536, file.size_bytes - first)
    with io.BufferedReader(opened(file, waiting)) as handle:
        handle.seek(file.size_bytes - tail_bytes)
        tail = handle.read(tail_bytes)
    text = tail.rstrip(b"\r\n")
    line_break = tail[len(text) :].find(b"\n")
    if line_break < 0:
        return file.size_bytes, tail_bytes > 0
    if not text and tail_bytes == file.size_bytes - first:
        return first, False
    return file.size_bytes - tail_bytes + len(text) + line_break + 1, False


def _load(path: Path) -> TextIndex | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=TextIndex)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # the caller makes an absent or damaged entry again


def _store(path: Path, index: TextIndex) -> str | None:
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(msgspec.json.encode(index))
        partial.replace(path)
    except OSError as error:
        return (
            f"{index.path}: its line index cannot be stored in {path.parent} ({error.strerror}), so every process "
            f"makes it again; set ELASTICHOST_CACHE to a writable folder"
        )
    return None
