"""Reads a part of the rows of a file: its first ones, and for Parquet some from its middle and its end."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.files import GZIP_MAGIC, PARQUET_MAGIC, missing_file
from elastichost.datasets.inference.text_types import TextType, list_delimiter_of, typed_column
from elastichost.datasets.text.convert import format_of_line
from elastichost.datasets.text.csv import read_header, real_delimiter
from elastichost.datasets.text.csv_block import BlockFormat, read_block
from elastichost.errors import DataError

__all__ = ["FileSample", "read_sample"]

ROWS = 200_000
TEXT_BYTES = 32 << 20
GROUPS = 4  # row groups of a Parquet file that are read

FileFormat = Literal["parquet", "csv", "criteo_tsv"]


@dataclass(frozen=True, slots=True)
class FileSample:
    """Some rows of a file. rows: number of all rows, None if it is not known. text_types: of the columns of a CSV file.
    list_delimiter: "" if no column has lists. first_bytes: of the file as it is stored, so those of gzip tell it."""

    format: FileFormat
    table: pa.Table
    rows: int | None = None
    text_types: dict[str, TextType] | None = None
    delimiter: str = ","
    list_delimiter: str = ""
    first_bytes: bytes = b""


def read_sample(path: Path) -> FileSample:
    """Some rows of a Parquet file, or of a text file with a header line; none of a Criteo TSV file, whose columns are
    fixed. Raises DataError: there is no such file, it is empty, compressed, or cannot be read."""
    if not path.is_file():
        raise DataError(
            f"{path}: is a folder" if path.is_dir() else missing_file(str(path)), hint="name one file of samples"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path}: is empty (0 bytes)", hint="name a file with samples")
    with path.open("rb") as file:
        first_bytes = file.read(len(PARQUET_MAGIC))
        if first_bytes == PARQUET_MAGIC:
            return _parquet(path)
        file.seek(0)
        first_line, body = _text(path, file, is_compressed=first_bytes.startswith(GZIP_MAGIC))
    if format_of_line(first_line) == "criteo_tsv":
        return FileSample("criteo_tsv", pa.table({}), first_bytes=first_bytes)
    return _csv(path, first_line, body, first_bytes)


def _parquet(path: Path) -> FileSample:
    try:
        with pq.ParquetFile(path) as file:
            count = file.metadata.num_row_groups
            groups = sorted({round(one * (count - 1) / max(GROUPS - 1, 1)) for one in range(GROUPS)}) if count else []
            each = ROWS // max(len(groups), 1)
            parts = [file.read_row_group(group).slice(0, each) for group in groups]
            rows = file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
    if not rows:
        raise DataError(f"{path}: has no rows", hint="name a file with samples")
    return FileSample("parquet", pa.concat_tables(parts), rows)


def _csv(path: Path, header: bytes, body: bytes, first_bytes: bytes) -> FileSample:
    is_whole = len(header) + len(body) <= TEXT_BYTES
    delimiter = real_delimiter(header, ",") or ","
    try:
        names = read_header(header, delimiter)
    except UnicodeDecodeError:
        raise DataError(f"{path}: line 1: the header is not UTF-8 text", hint="name a CSV or Parquet file") from None
    if not body.strip():
        raise DataError(f"{path}: has a header line and no rows", hint="name a file with samples")
    if not body.endswith(b"\n"):
        body = body + b"\n" if is_whole else body[: body.rfind(b"\n") + 1]
    lines = body.count(b"\n")
    block = BlockFormat(names, dict.fromkeys(names, pa.string()), delimiter)
    log = BadRowLog(lines)
    table = read_block(np.frombuffer(body, np.uint8), lines, block, log, lambda row: f"{path}: line {row + 2}")
    table = table.filter(pa.array(~log.mask)).slice(0, ROWS)
    list_delimiter = list_delimiter_of([table.column(name) for name in table.column_names])
    types: dict[str, TextType] = {}
    columns = []
    for name in table.column_names:
        types[name], values = typed_column(table.column(name), list_delimiter)
        columns.append(values)
    rows = lines if is_whole else None
    found = pa.table(columns, names=table.column_names)
    return FileSample("csv", found, rows, types, delimiter, list_delimiter, first_bytes)


def _text(path: Path, file: BinaryIO, *, is_compressed: bool) -> tuple[bytes, bytes]:
    """(the first line, what follows it): TEXT_BYTES in all, and one more byte if the text is longer. Of Criteo TSV only
    the first line: its columns are fixed."""
    source = gzip.GzipFile(fileobj=file) if is_compressed else file
    try:
        first_line = source.readline(TEXT_BYTES)
        if format_of_line(first_line) == "criteo_tsv":
            return first_line, b""
        return first_line, source.read(TEXT_BYTES + 1 - len(first_line))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged: {error}", hint="make the file again") from error
