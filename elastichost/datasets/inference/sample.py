"""Reads a part of the rows of a file: its first ones, and for Parquet some from its middle and its end."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.files import (
    GZIP_MAGIC,
    PARQUET_MAGIC,
    FileStamp,
    format_of_line,
    is_url,
    named_file,
    readable,
    real_delimiter,
)
from elastichost.datasets.inference.text_types import TextType, decimal_of, list_delimiter_of, typed_column
from elastichost.datasets.parquet.schema import opened_parquet
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.text.csv import header_problem, read_header
from elastichost.datasets.text.csv_block import BlockFormat, read_block
from elastichost.errors import DataError
from elastichost.human_readable import mib, plural

__all__ = ["FileSample", "read_sample"]

ROWS = 200_000
TEXT_BYTES = 32 << 20
PIECE_BYTES = 1 << 20  # of a request to an address
GROUPS = 4  # row groups of a Parquet file that are read
GZIP_RATIO = 4  # of text, about
REMOTE_BYTES = 64 << 20  # of a Parquet file at an address that are read, or one row group

FileFormat = Literal["parquet", "csv", "criteo_tsv"]


@dataclass(frozen=True, slots=True)
class FileSample:
    """Some rows of a file. rows: number of all rows, None if it is not known. about_rows: the same, estimated from the
    bytes of the file where it is not known. text_types: of the columns of a CSV file.
    list_delimiter: "" if no column has lists. decimal: before the fraction of a number. first_bytes: of the file as it
    is stored, so those of gzip tell it. bad_rows: left out, because they do not have the columns of the header;
    first_bad: what is wrong with the first."""

    format: FileFormat
    table: pa.Table
    rows: int | None = None
    about_rows: int = 0
    text_types: dict[str, TextType] | None = None
    delimiter: str = ","
    list_delimiter: str = ""
    decimal: str = "."
    first_bytes: bytes = b""
    bad_rows: int = 0
    first_bad: str = ""


def read_sample(name: str | os.PathLike[str], waiting: RequestPolicy = BEFORE_RUN) -> FileSample:
    """Some rows of a Parquet file, or of a text file with a header line; none of a Criteo TSV file, whose columns are
    fixed. name: a path, or an address. Raises DataError: there is no such file, it is empty or damaged, or cannot be
    read."""
    stored = named_file(name, hint="name one file of samples", waiting=waiting)
    if stored.size_bytes == 0:
        raise DataError(f"{name}: is empty (0 bytes)", hint="name a file with samples")
    with io.BufferedReader(readable(stored, waiting), PIECE_BYTES) as file:
        first_bytes = file.peek(len(PARQUET_MAGIC))[: len(PARQUET_MAGIC)]
        if first_bytes == PARQUET_MAGIC:
            return _parquet(stored, waiting)
        first_line, body = _text(stored.path, file, is_compressed=first_bytes.startswith(GZIP_MAGIC))
    if format_of_line(first_line) == "criteo_tsv":
        return FileSample("criteo_tsv", pa.table({}), first_bytes=first_bytes)
    return _csv(stored, first_line, body, first_bytes)


def _parquet(stored: FileStamp, waiting: RequestPolicy) -> FileSample:
    path = stored.path
    try:
        with opened_parquet(stored, waiting) as source, pq.ParquetFile(source, pre_buffer=is_url(path)) as file:
            groups = _groups(file.metadata, REMOTE_BYTES if is_url(path) else None)
            _check_names(path, file.schema_arrow.names)
            each = ROWS // max(len(groups), 1)
            # A whole group may not fit into memory, and a slice of it would keep all of it.
            parts = [batch for group in groups for batch in islice(file.iter_batches(each, row_groups=[group]), 1)]
            rows, schema = file.metadata.num_rows, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
    if not rows:
        raise DataError(f"{path}: has no rows", hint="name a file with samples")
    return FileSample("parquet", pa.Table.from_batches(parts, schema), rows, rows)


def _check_names(path: str, names: Sequence[str]) -> None:
    """Raises DataError for two columns of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}: two columns have the name {twice[0]!r}", hint="write the file with other names")


def _groups(metadata: pq.FileMetaData, most_bytes: int | None) -> list[int]:
    """The row groups that are read: the first, the last, and some between. Where they have more than `most_bytes`, as
    many of them as have less, and the first in any case."""
    last = metadata.num_row_groups - 1
    groups = sorted({round(one * last / max(GROUPS - 1, 1)) for one in range(GROUPS)}) if last >= 0 else []
    if most_bytes is None:
        return groups
    sizes = np.cumsum([_stored_bytes(metadata.row_group(group)) for group in groups])
    return [group for place, group in enumerate(groups) if place == 0 or sizes[place] <= most_bytes]


def _stored_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))


def _csv(stored: FileStamp, header: bytes, body: bytes, first_bytes: bytes) -> FileSample:
    path, is_whole = stored.path, len(header) + len(body) <= TEXT_BYTES
    delimiter = real_delimiter(header, ",") or ","
    try:
        names = read_header(header, delimiter)
    except ValueError as error:
        raise DataError(f"{path}: line 1: {header_problem(error)}", hint="name a CSV or Parquet file") from None
    if not is_whole:
        body = body[: body.rfind(b"\n") + 1]  # the last line is cut
    body = body.rstrip(b"\r\n") + b"\n"  # readers and `convert` leave out empty lines at the end, too
    if not body.strip():
        where = "" if is_whole else f" in its first {mib(TEXT_BYTES)}"
        raise DataError(f"{path}: has a header line and no rows{where}", hint="name a file with samples")
    lines = body.count(b"\n")
    block = BlockFormat(names, dict.fromkeys(names, pa.string()), delimiter)
    log = BadRowLog(lines)
    table = read_block(np.frombuffer(body, np.uint8), lines, block, log, lambda row: f"{path}: line {row + 2}")
    if log.first is not None and log.count == lines:
        raise DataError(
            f"{log.first[1]}; none of the rows that were read can be used",
            hint=f"each row needs {plural(len(names), 'field')}, as the header has, in UTF-8; "
            "in R: write.table(..., row.names = FALSE)",
        )
    table = table.filter(pa.array(~log.mask)).slice(0, ROWS)
    all_texts = [table.column(name) for name in table.column_names]
    list_delimiter = list_delimiter_of(all_texts)
    decimal = decimal_of(all_texts) if delimiter != "," else "."  # a run refuses a comma that is both
    types: dict[str, TextType] = {}
    columns = []
    for name in table.column_names:
        types[name], values = typed_column(table.column(name), list_delimiter, decimal)
        columns.append(values)
    text_bytes = stored.size_bytes * (GZIP_RATIO if first_bytes.startswith(GZIP_MAGIC) else 1)
    return FileSample(
        "csv",
        pa.table(columns, names=table.column_names),
        rows=lines if is_whole else None,
        about_rows=lines if is_whole else lines * text_bytes // len(body),
        text_types=types,
        delimiter=delimiter,
        list_delimiter=list_delimiter,
        decimal=decimal,
        first_bytes=first_bytes,
        bad_rows=log.count,
        first_bad=log.first[1] if log.first is not None else "",
    )


def _text(path: str, file: BinaryIO, *, is_compressed: bool) -> tuple[bytes, bytes]:
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
