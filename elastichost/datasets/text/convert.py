"""Converts text files to Parquet, so that data which is read many times is parsed only once."""

from __future__ import annotations

import gzip
import io
import os
import shlex
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.files import (
    GZIP_MAGIC,
    FileStamp,
    SourceFormat,
    absolute_name,
    format_of_line,
    is_parquet,
    is_url,
    named_file,
    readable,
    real_delimiter,
)
from elastichost.datasets.parquet.group_writer import write_groups
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, CRITEO_LABEL
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.text.csv import ARROW_TYPES, header_problem, read_header
from elastichost.datasets.text.csv_block import BlockFormat, are_booleans, floats_of, read_block, without_missing
from elastichost.errors import DataError
from elastichost.human_readable import did_you_mean

__all__ = ["ConvertReport", "convert", "format_of"]


BLOCK_BYTES = 16 << 20
REMOTE_PIECE_BYTES = 4 << 20  # of a request to an address
CONVERT_TYPES: dict[str, pa.DataType] = {"float": pa.float64(), "bool": pa.bool_()} | {
    str(name): kind for name, kind in ARROW_TYPES.items()
}


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """The result of a conversion. `first_bad_row`: the message for the first row that was left out; "" for none."""

    source: str
    destination: str
    rows: int
    bad_rows: int
    first_bad_row: str
    row_groups: int
    source_bytes: int
    destination_bytes: int


def convert(
    source: str | os.PathLike[str],
    destination: Path,
    *,
    format: SourceFormat,  # noqa: A002 - the name of this setting in the job file
    types: Mapping[str, str] | None = None,
    columns: Collection[str] = (),
    delimiter: str = ",",
    list_delimiter: str = "|",
    decimal: str = ".",
    bad_rows: Literal["stop", "skip"] = "stop",
    row_group_rows: int = 65_536,
    progress: Callable[[int], None] = lambda rows: None,
    waiting: RequestPolicy = BEFORE_RUN,
) -> ConvertReport:
    """Converts `source` (Criteo TSV, or CSV with a header; plain or gzip) to Parquet with groups of `row_group_rows`.

    types     CSV column -> int, float, bool, string, list[int] or list[string]; the type of a column without an entry
              is found from the first 16 MiB: int, float, bool (true and false) or string
    columns   of a CSV file that are read and written; none: all of them, whose names must differ
    decimal   "." or ",": before the fraction of a number of a CSV file
    progress  is called with the number of rows written so far
    source    a path, or an address, whose bytes are read once, in pieces

    `destination` appears only when it is complete. Raises DataError, with file, line and column where they are known,
    for a bad row (unless bad rows are skipped), a damaged gzip file, or a wrong column name in `types`.
    """
    if str(destination.resolve()) == absolute_name(source):
        raise DataError(f"{source}: source and destination are the same file", hint="name another destination")
    file = _checked_source(source, waiting)
    if not destination.absolute().parent.is_dir():
        raise DataError(
            f"{destination}: cannot be written: its folder does not exist", hint="make the folder, or name another one"
        )
    lines = _LineBlocks(file, waiting)
    try:
        with lines:
            block = _criteo_format() if format == "criteo_tsv" else None
            csv = _CsvForm(dict(types or {}), frozenset(columns), delimiter, list_delimiter, decimal)
            conversion = _Conversion(file.path, lines, block, csv, skip=bad_rows == "skip")
            row_groups = _write_atomically(destination, conversion, row_group_rows, progress)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file.path, error) from error
    return ConvertReport(
        source=file.path,
        destination=str(destination),
        rows=conversion.rows,
        bad_rows=conversion.bad_rows,
        first_bad_row=conversion.first_bad_row,
        row_groups=row_groups,
        source_bytes=file.size_bytes,
        destination_bytes=destination.stat().st_size,
    )


def format_of(source: str | os.PathLike[str], waiting: RequestPolicy = BEFORE_RUN) -> SourceFormat:
    """The format of a text file (plain or gzip): criteo_tsv when its first line has as many tab-separated fields as
    Criteo TSV, else csv. Raises DataError when the file cannot be read."""
    file = _checked_source(source, waiting)
    try:
        with _LineBlocks(file, waiting) as lines:
            return format_of_line(lines.first_line())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file.path, error) from error


def _checked_source(source: str | os.PathLike[str], waiting: RequestPolicy) -> FileStamp:
    """Raises DataError when there is no such file, it is empty, or it is Parquet already."""
    hint = "name the text file to convert"
    file = named_file(source, hint=hint, waiting=waiting)
    if file.size_bytes == 0:
        raise DataError(f"{source}: is empty (0 bytes)", hint=hint)
    if is_parquet(file, waiting):
        raise DataError(f"{source}: is a Parquet file already", hint="name it in data.train or data.test as it is")
    return file


def _damaged(source: str, error: Exception) -> DataError:
    return DataError(
        f"{source}: damaged gzip data ({error})", hint="copy or download the file again: it is incomplete or corrupt"
    )


class _LineBlocks:
    """Reads blocks of whole lines from a plain or compressed file. Empty lines at its end are left out."""

    def __init__(self, source: FileStamp, waiting: RequestPolicy) -> None:
        self._source, self._waiting = source, waiting
        self._stored: io.BufferedReader | None = None
        self._file: io.BufferedReader | gzip.GzipFile | None = None

    def __enter__(self) -> _LineBlocks:
        piece_bytes = REMOTE_PIECE_BYTES if is_url(self._source.path) else io.DEFAULT_BUFFER_SIZE
        self._stored = io.BufferedReader(readable(self._source, self._waiting), piece_bytes)
        is_compressed = self._stored.peek(2)[:2] == GZIP_MAGIC
        self._file = gzip.GzipFile(fileobj=self._stored) if is_compressed else self._stored
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if self._stored is not None:
            self._stored.close()  # a compressed file leaves it open

    def first_line(self) -> bytes:
        assert self._file is not None
        return self._file.readline()

    def blocks(self) -> Iterator[bytes]:
        assert self._file is not None
        carried = b""
        while chunk := self._file.read(BLOCK_BYTES):
            carried += chunk
            last = carried.rfind(b"\n") + 1
            text = carried[:last].rstrip(b"\r\n")
            if not text:
                continue
            # Empty lines after the text are kept for the next block: at the end of the file they are left out.
            stop = carried.index(b"\n", len(text)) + 1
            yield carried[:stop]
            carried = carried[stop:]
        if rest := carried.rstrip(b"\r\n"):
            yield rest


@dataclass(frozen=True, slots=True)
class _CsvForm:
    """What `convert` is told about a CSV file."""

    types: Mapping[str, str]
    columns: frozenset[str]
    delimiter: str
    list_delimiter: str
    decimal: str


class _Conversion:
    """Gives tables of the good rows, block by block, and counts the bad ones. block: of Criteo TSV; None: CSV, whose
    block format is found from the header and the first block."""

    def __init__(
        self, source: str, lines: _LineBlocks, block: BlockFormat | None, csv: _CsvForm, *, skip: bool
    ) -> None:
        self.source = source
        self._lines = lines
        self._block = block
        self._is_criteo = block is not None
        self._csv = csv
        self._skip = skip
        self.rows = 0
        self.bad_rows = 0
        self.first_bad_row = ""

    def tables(self) -> Iterator[pa.Table]:
        """Raises DataError for a bad row, unless bad rows are skipped."""
        next_line = 1
        header: tuple[str, ...] = ()
        if self._block is None:
            header = self._read_header()
            next_line = 2
        for text in self._lines.blocks():
            if self._block is None:
                self._block = self._infer(header, text)
            lines = text.count(b"\n") + (not text.endswith(b"\n"))
            yield self._read(self._block, text, lines, next_line)
            next_line += lines

    def _read(self, block: BlockFormat, text: bytes, lines: int, first_line: int) -> pa.Table:
        log = BadRowLog(lines)

        def locate(row: int) -> str:
            return f"{self.source}: line {first_line + row}"

        table = read_block(np.frombuffer(text, dtype=np.uint8), lines, block, log, locate)
        if self._is_criteo:
            table = _check_labels(table, log, locate)
        if self._is_criteo and log.first is not None and log.count == lines and first_line == 1:
            delimiter = r" --delimiter '\t'" if b"\t" in text.partition(b"\n")[0] else ""
            raise DataError(
                f"{self.source}: is not Criteo TSV: each of its first {lines:,} lines is bad; {log.first[1]}",
                hint=f"if it has a header line with column names, convert it with --format csv{delimiter}",
            )
        bad = log.settle(skip=self._skip, how_to_skip="convert with --bad-rows skip")
        if bad is not None:
            if not self.first_bad_row and log.first is not None:
                self.first_bad_row = log.first[1]
            self.bad_rows += log.count
            table = table.filter(pa.array(~bad))
        self.rows += table.num_rows
        return table

    def _read_header(self) -> tuple[str, ...]:
        line = self._lines.first_line()
        try:
            header = read_header(line, self._csv.delimiter)
        except ValueError as error:
            raise DataError(
                f"{self.source}: line 1: {header_problem(error)}", hint="save the file as CSV in UTF-8, then convert it"
            ) from error
        if (other := real_delimiter(line, self._csv.delimiter)) is not None:
            shown = shlex.quote(other.replace("\t", "\\t"))
            raise DataError(
                f"{self.source}: line 1 has one column: columns are separated by {shown}",
                hint=f"convert it with --delimiter {shown}",
            )
        read = self._read_columns(header)
        if len(set(read)) != len(read):
            raise DataError(f"{self.source}: line 1: a column name appears twice", hint="column names must differ")
        for name, kind in self._csv.types.items():
            if kind not in CONVERT_TYPES:
                raise DataError(
                    f"{kind!r} of column {name!r} is not a type", hint=f"use one of {', '.join(CONVERT_TYPES)}"
                )
        for name in (*self._csv.types, *self._csv.columns):
            if name not in header:
                raise DataError(f"{self.source}: no column {name!r} in the header{did_you_mean(name, header)}")
        return header

    def _read_columns(self, header: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in header if not self._csv.columns or name in self._csv.columns)

    def _infer(self, header: tuple[str, ...], text: bytes) -> BlockFormat:
        """The block format, with types from the first block for the columns that have no declared type."""
        block = BlockFormat(
            names=header,
            types=dict.fromkeys(self._read_columns(header), pa.string()),
            delimiter=self._csv.delimiter,
            list_delimiter=self._csv.list_delimiter,
            decimal=self._csv.decimal,
        )
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        data = np.frombuffer(text, dtype=np.uint8)
        table = read_block(data, lines, block, BadRowLog(lines), lambda row: f"{self.source}: line {row + 2}")
        types = {}
        for name in self._read_columns(header):
            told = self._csv.types.get(name)
            types[name] = CONVERT_TYPES[told] if told else _infer_type(table.column(name), self._csv.decimal)
        return replace(block, types=types)


def _criteo_format() -> BlockFormat:
    names = (CRITEO_LABEL, *CRITEO_DENSE, *CRITEO_CATEGORICAL)
    integers = dict.fromkeys((CRITEO_LABEL, *CRITEO_DENSE), pa.int64())
    strings = dict.fromkeys(CRITEO_CATEGORICAL, pa.string())
    return BlockFormat(names=names, types={**integers, **strings}, delimiter="\t", quoted=False, has_words=False)


def _check_labels(table: pa.Table, log: BadRowLog, locate: Callable[[int], str]) -> pa.Table:
    labels = table.column(0)
    good = pc.fill_null(pc.is_in(labels, value_set=pa.array([0, 1], type=pa.int64())), False)
    bad = ~good.to_numpy()
    log.add(
        bad,
        lambda row: f"{locate(row)}, column {CRITEO_LABEL!r}: label is {labels[row].as_py()}, not 0 or 1",
    )
    small = pc.if_else(pa.array(bad), pa.scalar(None, pa.int64()), labels).cast(pa.int8())
    return table.set_column(0, CRITEO_LABEL, small)


def _infer_type(column: pa.ChunkedArray, decimal: str) -> pa.DataType:
    """bool for true and false; int64 where it represents all values exactly (no leading zeros, no overflow), else
    float64, else string. Empty texts count as nulls."""
    column = without_missing(column)
    if column.null_count == len(column):
        return pa.string()
    if are_booleans(column):
        return pa.bool_()
    if pc.any(pc.match_substring_regex(column, r"^-?0[0-9]")).as_py():
        return pa.string()
    try:
        column.cast(pa.int64())
        return pa.int64()
    except pa.ArrowInvalid:
        pass
    if pc.all(pc.match_substring_regex(column, r"^-?[0-9]+$")).as_py():
        return pa.string()  # identifiers of more than 64 bits
    try:
        floats_of(column, decimal)
        return pa.float64()
    except pa.ArrowInvalid:
        return pa.string()


def _write_atomically(
    destination: Path, conversion: _Conversion, row_group_rows: int, progress: Callable[[int], None]
) -> int:
    """Writes a partial file beside `destination`, and renames it when complete. Returns the number of row groups."""
    partial = destination.with_name(f".{destination.name}.{os.getpid()}.partial")
    try:
        with open(partial, "xb") as file:
            row_groups = _write(file, conversion, row_group_rows, progress)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(destination)
    except gzip.BadGzipFile:
        raise  # it is an OSError too, but it concerns the source
    except OSError as error:
        raise DataError(
            f"{destination}: cannot be written from {conversion.source} ({error.strerror or error})",
            hint="check the free space of the disk, and your permission to write there",
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return row_groups


def _write(file: BinaryIO, conversion: _Conversion, row_group_rows: int, progress: Callable[[int], None]) -> int:
    row_groups = write_groups(file, conversion.tables(), row_group_rows, progress=progress)
    if row_groups == 0:
        if conversion.bad_rows == 0:
            raise DataError(f"{conversion.source}: has a header line, but no rows", hint="name a file with rows")
        raise DataError(
            f"{conversion.source}: has no good rows: {conversion.first_bad_row}", hint="check that --format is right"
        )
    return row_groups
