"""Memory of one bucket: allocated when its rows move to this host, and freed after they have moved to another host."""

from __future__ import annotations

from collections.abc import Iterator

from elastichost.arena.arena import Arena
from elastichost.arena.files import MappedFile
from elastichost.arena.index import table as index
from elastichost.arena.layout import SLOT_BYTES
from elastichost.arena.words import announce

__all__ = ["allocate_bucket", "free_bucket"]


def allocate_bucket(arena: Arena, table: int, bucket: int) -> None:
    """Allocates all rows of a fixed table's bucket. Rows that were allocated before keep their values. Raises
    ArenaFullError."""
    name, rows = arena.model.tables[table].name, arena.layout.bucket_rows(table, bucket)
    for file, offset_bytes, length_bytes in _of_rows(arena, table, bucket, rows):
        file.allocate(offset_bytes, length_bytes, f"bucket {bucket} of table {name!r}")


def free_bucket(arena: Arena, table: int, bucket: int) -> None:
    """Frees the memory of a bucket that no process uses any more. If the process is killed within this call, its
    successor may repeat the call. Raises ArenaError."""
    header, layout = arena.header(table, bucket), arena.layout
    announce(header, index.FILLED, 0)
    rows = layout.bucket_rows(table, bucket)
    if arena.model.tables[table].is_dynamic:
        rows, first = int(header[index.ALLOCATED_ROWS]), layout.bucket_first_row(table, bucket)
        arena.files.ids.punch(8 * (layout.ids_offset(table) + first), 8 * rows)
        arena.files.seen.punch(4 * (layout.seen_offset(table) + first), 4 * rows)
        region_bytes = SLOT_BYTES * layout.tables[table].region_slots
        arena.files.index.punch(SLOT_BYTES * layout.slot_offset(table, bucket), region_bytes)
    for file, offset_bytes, length_bytes in _of_rows(arena, table, bucket, rows):
        file.punch(offset_bytes, length_bytes)
    header[:] = 0


def _of_rows(arena: Arena, table: int, bucket: int, rows: int) -> Iterator[tuple[MappedFile, int, int]]:
    """(file, first byte, bytes) of the weights and of the optimizer state of a bucket's first `rows` rows."""
    layout, first = arena.layout, arena.layout.bucket_first_row(table, bucket)
    for e in arena.model.embeddings_of(table):
        line_bytes = e.bytes_per_element * e.padded_dim
        offset_bytes = e.bytes_per_element * layout.rows_offset(e.index) + first * line_bytes
        yield arena.files.rows, offset_bytes, rows * line_bytes
        if e.state_floats_per_row:
            offset_bytes = 4 * (layout.state_offset(e.index) + first * e.state_floats_per_row)
            yield arena.files.state, offset_bytes, 4 * rows * e.state_floats_per_row
