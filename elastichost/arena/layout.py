"""The layout of an arena's files, computed from the model, the seed and the memory budget. Pure.

Inputs: the specs of the tables and embeddings, the number of dense parameters, the memory that the job may use, and the
key of the index hashes. Output: an `ArenaLayout` with the offset of every array, written to `LAYOUT.json`.

The files are sparse, so virtual size costs nothing and only touched pages take memory. A bucket of a dynamic table
therefore gets room for far more rows than it will probably hold, and its rows are handed out in order from the first.

    rows     float32, or bfloat16 as uint16: of each embedding [row_space, padded_dim]
    state    float32: of each embedding with optimizer state [row_space, state floats per row]
    ids      int64: of each dynamic table [row_space]
    seen     uint32: of each dynamic table [row_space]
    index    int64 pairs (key, value): of each bucket of a dynamic table a region of two halves; an index generation
             lies in one half
    control  int64 [HEADER_WORDS]: of each bucket of every table
    dense    a page of words, two halves of the dense vector, two mailboxes for each worker
"""

from __future__ import annotations

import hashlib

import msgspec

from elastichost.errors import ArenaFullError
from elastichost.host.machine import ADDRESS_BYTES, PAGE_BYTES
from elastichost.sharding import bucket_count, rows_per_bucket
from elastichost.specs import MAX_WORKERS, ModelSpec, TableSpec

__all__ = [
    "APPLIED_WORDS",
    "HEADER_WORDS",
    "MAILBOX_HEAD_BYTES",
    "MAX_WORKERS",
    "SLOT_BYTES",
    "ArenaLayout",
    "DenseLayout",
    "EmbeddingLayout",
    "FileSizes",
    "TableLayout",
    "plan_layout",
    "rows_ahead",
    "whole_pages",
]

HEADER_WORDS = 16  # int64 words of the control header of each (table, bucket)
APPLIED_WORDS = 6  # words of an applied record: incarnation, sequence, lease_id, stop, samples, skipped
MAILBOX_HEAD_BYTES = 512  # bytes of one of a worker's two mailboxes before the vector: its words and the message
SLOT_BYTES = 16  # key int64, value int64

MIN_BUCKET_ROWS = 4096
MAX_BUCKET_ROWS = 1 << 26
MAX_VIRTUAL_BYTES = ADDRESS_BYTES // 4  # a quarter of the addresses of a process: libraries map memory, too
# The largest index of a bucket has four slots for each of the bucket's rows.
SLOTS_PER_ROW = 4
LAYOUT_VERSION = 3
# A growing bucket allocates a sixteenth of its rows in advance, within these bounds in bytes of its widest embedding:
# so there are few system calls, little memory is allocated early, and the pause is short for a table of any size.
LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES = 64 * 1024, 1024 * 1024
AHEAD = 16


class TableLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one table lies in the files. A fixed table has no ids, no seen and no index: these offsets are -1."""

    row_space: int  # row numbers are 0 to row_space - 1
    buckets: int
    bucket_rows: int  # row numbers per bucket: the size of a fixed table's ranges, the capacity of a dynamic bucket
    first_header: int  # number of bucket 0's header in `control`
    ids_offset: int = -1  # elements of `ids` before the table's
    seen_offset: int = -1  # elements of `seen` before the table's
    slot_offset: int = -1  # slots of `index` before bucket 0's region
    region_slots: int = 0  # slots of each bucket's region: twice the capacity of the largest generation


class EmbeddingLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one embedding lies: element offsets in `rows`, counted in its own precision, and in `state` (-1: its
    optimizer has no state)."""

    rows_offset: int
    state_offset: int


class DenseLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Byte offsets in the file `dense`: a page of words, two halves (each with header, applied records, vector and
    state), then the mailboxes."""

    half_offsets: tuple[int, int]
    applied_offset: int  # from the beginning of the half, as are the next two
    vector_offset: int
    state_offset: int
    mailbox_offset: int  # mailbox (worker, half) begins at mailbox_offset + (2 * worker + half) * mailbox_bytes
    mailbox_bytes: int


class FileSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Virtual size of each file in bytes."""

    rows: int
    state: int
    ids: int
    seen: int
    index: int
    control: int
    dense: int

    @property
    def total(self) -> int:
        return self.rows + self.state + self.ids + self.seen + self.index + self.control + self.dense


class ArenaLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `LAYOUT.json`: all that a process needs to find a row, a slot or a mailbox."""

    version: int
    model: ModelSpec
    seed: int
    index_key: int  # 63-bit key of `hashing.slot_hash`, for the indexes of dynamic tables
    memory_bytes: int
    tables: tuple[TableLayout, ...]
    embeddings: tuple[EmbeddingLayout, ...]
    dense: DenseLayout
    files: FileSizes
    fixed_bytes: int  # memory that the fixed tables, the dense part and the headers take
    max_workers: int = MAX_WORKERS

    @property
    def bytes_without_rows(self) -> int:
        """Memory that the dense part and the headers take: the fixed size of an arena that begins without rows."""
        return self.dense.mailbox_offset + self.files.control

    def row_space(self, table: int) -> int:
        """Number of rows of the table: row numbers are 0 to row_space - 1."""
        return self.tables[table].row_space

    def bucket_count(self, table: int) -> int:
        return self.tables[table].buckets

    def bucket_capacity(self, table: int) -> int:
        """Row numbers per bucket of the table."""
        return self.tables[table].bucket_rows

    def bucket_first_row(self, table: int, bucket: int) -> int:
        """First row number of a bucket, in the table's row space."""
        return bucket * self.tables[table].bucket_rows

    def bucket_rows(self, table: int, bucket: int) -> int:
        """Row numbers of this bucket: the last bucket of a fixed table may have fewer than the others."""
        place = self.tables[table]
        return max(0, min(place.bucket_rows, place.row_space - bucket * place.bucket_rows))

    def header_number(self, table: int, bucket: int) -> int:
        return self.tables[table].first_header + bucket

    def rows_offset(self, embedding: int) -> int:
        """Elements before the embedding in `rows`, counted in the embedding's own precision."""
        return self.embeddings[embedding].rows_offset

    def state_offset(self, embedding: int) -> int:
        """float32 elements before the embedding in `state`; -1 if it has no optimizer state."""
        return self.embeddings[embedding].state_offset

    def ids_offset(self, table: int) -> int:
        return self.tables[table].ids_offset

    def seen_offset(self, table: int) -> int:
        return self.tables[table].seen_offset

    def slot_offset(self, table: int, bucket: int) -> int:
        """Slots before the bucket's region in `index`."""
        place = self.tables[table]
        return place.slot_offset + bucket * place.region_slots


def whole_pages(size_bytes: int) -> int:
    """The size rounded up to whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def _power_of_two_at_least(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _bytes_per_row(model: ModelSpec, table: TableSpec) -> int:
    """Memory of one row of a dynamic table: weights and state in all its embeddings, id, `seen` and two slots."""
    embeddings = model.embeddings_of(table.index)
    of_rows = sum(e.bytes_per_element * e.padded_dim + 4 * e.state_floats_per_row for e in embeddings)
    return of_rows + 8 + 4 + 2 * SLOT_BYTES


def _bucket_rows(model: ModelSpec, table: TableSpec, memory_bytes: int, limit: int) -> int:
    if not table.is_dynamic:
        return rows_per_bucket(table)
    buckets = bucket_count(table)
    wanted = 2 * memory_bytes // buckets // _bytes_per_row(model, table)
    return max(MIN_BUCKET_ROWS, min(limit, _power_of_two_at_least(wanted)))


def _plan_tables(model: ModelSpec, memory_bytes: int, limit: int) -> tuple[tuple[TableLayout, ...], int, int]:
    """(tables in order, elements of `ids` and of `seen`, slots of `index`)."""
    tables: list[TableLayout] = []
    headers = elements = slots = 0
    for table in model.tables:
        buckets, rows = bucket_count(table), _bucket_rows(model, table, memory_bytes, limit)
        if not table.is_dynamic:
            tables.append(TableLayout(table.rows, buckets, rows, headers))
        else:
            region = 2 * SLOTS_PER_ROW * rows
            tables.append(
                TableLayout(
                    row_space=buckets * rows,
                    buckets=buckets,
                    bucket_rows=rows,
                    first_header=headers,
                    ids_offset=elements,
                    seen_offset=elements,
                    slot_offset=slots,
                    region_slots=region,
                )
            )
            # Each half of a region has a power-of-two size of at least a page, so every generation begins on a page.
            elements += buckets * rows
            slots += buckets * region
        headers += buckets
    return tuple(tables), elements, slots


def _plan_embeddings(
    model: ModelSpec, tables: tuple[TableLayout, ...]
) -> tuple[tuple[EmbeddingLayout, ...], int, int, int]:
    """(embeddings in order, bytes of `rows`, bytes of `state`, bytes that the embeddings of fixed tables take)."""
    embeddings: list[EmbeddingLayout] = []
    rows_bytes = state_bytes = fixed_bytes = 0
    for embedding in model.embeddings:
        row_space = tables[embedding.table].row_space
        size = embedding.bytes_per_element
        needs = whole_pages(size * row_space * embedding.padded_dim)
        state_needs = whole_pages(4 * row_space * embedding.state_floats_per_row)
        embeddings.append(EmbeddingLayout(rows_bytes // size, state_bytes // 4 if state_needs else -1))
        rows_bytes += needs
        state_bytes += state_needs
        if not model.tables[embedding.table].is_dynamic:
            fixed_bytes += needs + state_needs
    return tuple(embeddings), rows_bytes, state_bytes, fixed_bytes


def _plan_dense(elements: int, parameters: int) -> DenseLayout:
    applied_offset = HEADER_WORDS * 8
    vector_offset = whole_pages(applied_offset + MAX_WORKERS * APPLIED_WORDS * 8)
    state_offset = vector_offset + whole_pages(4 * elements)
    half_bytes = state_offset + whole_pages(8 * parameters)
    return DenseLayout(
        half_offsets=(PAGE_BYTES, PAGE_BYTES + half_bytes),
        applied_offset=applied_offset,
        vector_offset=vector_offset,
        state_offset=state_offset,
        mailbox_offset=PAGE_BYTES + 2 * half_bytes,
        mailbox_bytes=whole_pages(MAILBOX_HEAD_BYTES + 4 * elements),
    )


def _plan(model: ModelSpec, seed: int, index_key: int, memory_bytes: int, limit: int) -> ArenaLayout:
    tables, elements, slots = _plan_tables(model, memory_bytes, limit)
    embeddings, rows_bytes, state_bytes, fixed_bytes = _plan_embeddings(model, tables)
    dense = _plan_dense(model.dense.elements, model.dense.parameters)
    control_bytes = whole_pages(8 * HEADER_WORDS * sum(table.buckets for table in tables))
    files = FileSizes(
        rows=max(PAGE_BYTES, rows_bytes),
        state=max(PAGE_BYTES, state_bytes),
        ids=max(PAGE_BYTES, 8 * elements),
        seen=max(PAGE_BYTES, 4 * elements),
        index=max(PAGE_BYTES, SLOT_BYTES * slots),
        control=max(PAGE_BYTES, control_bytes),
        dense=dense.mailbox_offset + 2 * MAX_WORKERS * dense.mailbox_bytes,
    )
    return ArenaLayout(
        version=LAYOUT_VERSION,
        model=model,
        seed=seed,
        index_key=index_key,
        memory_bytes=memory_bytes,
        tables=tables,
        embeddings=embeddings,
        dense=dense,
        files=files,
        fixed_bytes=fixed_bytes + dense.mailbox_offset + files.control,
    )


def rows_ahead(allocated: int, widest: int) -> int:
    """By how many rows a bucket with `allocated` rows grows. widest: elements of a row of its widest embedding."""
    least = max(256, LEAST_AHEAD_BYTES // (4 * widest))
    return min(max(least, MOST_AHEAD_BYTES // (4 * widest)), max(least, allocated // AHEAD))


def plan_layout(model: ModelSpec, seed: int, memory_bytes: int, index_key: int | None = None) -> ArenaLayout:
    """The layout of a job's arena on a host where the job may use `memory_bytes`.

    A bucket of a dynamic table gets addresses for twice its share of the memory, rounded up to a power of two of rows
    (4096 to 2**26), and for fewer rows if the files exceed a quarter of a process' address space. Raises
    ArenaFullError when even the smallest buckets exceed it.

    index_key: a secret of this run. By default it is computed from the seed. Sync mode needs that: the index key
    decides which sightings are forgotten, and in sync mode the result must depend on the seed alone.
    """
    if memory_bytes <= 0:
        raise ValueError(f"memory_bytes must be positive, but it is {memory_bytes}")
    if index_key is None:
        index_key = _seeded_index_key(seed)
    limit = MAX_BUCKET_ROWS
    layout = _plan(model, seed, index_key, memory_bytes, limit)
    while layout.files.total > MAX_VIRTUAL_BYTES and limit > MIN_BUCKET_ROWS:
        limit //= 2
        layout = _plan(model, seed, index_key, memory_bytes, limit)
    if layout.files.total > MAX_VIRTUAL_BYTES:
        raise ArenaFullError(
            f"the model needs {layout.files.total} bytes of address space; the limit is {MAX_VIRTUAL_BYTES}",
            hint='reduce the rows of its largest tables, or set rows = "dynamic" for them',
        )
    return layout


def _seeded_index_key(seed: int) -> int:
    """The 63-bit key of `hashing.slot_hash` for runs whose results depend on the seed alone."""
    digest = hashlib.blake2b(f"index key/{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
