"""Writes tables as Parquet with row groups of one size, however large the tables are: a row group is a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["write_groups"]


def write_groups(
    file: BinaryIO,
    tables: Iterable[pa.Table],
    group_rows: int,
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Writes tables of one schema, and returns the number of row groups; the last one may be smaller. At most one row
    group and one table are in memory. Nothing is written without rows.

    metadata: texts that the footer keeps. progress is called with the number of rows so far, after each table."""
    writer: pq.ParquetWriter | None = None
    waiting: pa.Table | None = None
    groups = rows = 0
    try:
        for table in tables:
            rows += table.num_rows
            if writer is None:
                schema = table.schema.with_metadata(metadata) if metadata else table.schema
                writer = pq.ParquetWriter(file, schema, compression="zstd")
            waiting = table if waiting is None else pa.concat_tables([waiting, table])
            while waiting.num_rows >= group_rows:
                writer.write_table(waiting.slice(0, group_rows), row_group_size=group_rows)
                waiting = waiting.slice(group_rows)
                groups += 1
            progress(rows)
        if writer is not None and waiting is not None and waiting.num_rows:
            writer.write_table(waiting, row_group_size=group_rows)
            groups += 1
    finally:
        if writer is not None:
            writer.close()
    return groups
