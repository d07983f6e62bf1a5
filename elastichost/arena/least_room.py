"""The minimum number of bytes that an arena takes in its file system before the first batch is trained. Pure.

A dynamic table needs little memory at first. But each bucket needs a first page: without it no id of the bucket can get
a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from elastichost.arena.index.table import MIN_CAPACITY
from elastichost.arena.layout import SLOT_BYTES, ArenaLayout
from elastichost.arena.recovery.staging import MAX_PUSH_BYTES
from elastichost.arena.recovery.undo import MAX_RECORD_BYTES
from elastichost.host.machine import PAGE_BYTES
from elastichost.human_readable import mib
from elastichost.sharding import BUCKETS_PER_TABLE

__all__ = ["SPARE_BYTES", "LeastRoom", "address_bytes", "first_rows_bytes", "least_room"]

OWN_ADDRESS_BYTES = 16 << 30  # addresses of a PS outside the arena: libraries, heaps, copies for checkpoints
ALL = Fraction(1)
SPARE_BYTES = 4 << 20  # memory of each PS for staged pushes and undo records


@dataclass(frozen=True, slots=True)
class LeastRoom:
    """The minimum in bytes, by purpose. fixed: fixed tables, dense vector and headers. mailboxes: those of all workers.
    first_rows: one page of each array for each bucket of the dynamic tables. spare: staged pushes of all PS."""

    fixed: int
    mailboxes: int
    first_rows: int
    spare: int

    @property
    def total(self) -> int:
        return self.fixed + self.mailboxes + self.first_rows + self.spare

    def __str__(self) -> str:
        parts = (
            (self.fixed, "fixed tables and the dense part"),
            (self.mailboxes, "mailboxes of the workers"),
            (self.first_rows, "the first rows of dynamic tables"),
            (self.spare, "pushes that wait"),
        )
        return ", ".join(f"{mib(size)} {name}" for size, name in parts if size)


def first_rows_bytes(embeddings: int, states: int) -> int:
    """Bytes of the first pages of one dynamic table with `embeddings` embeddings, of which `states` have optimizer
    state."""
    pages = embeddings + states + 2  # 2: ids and `seen`
    return BUCKETS_PER_TABLE * (pages * PAGE_BYTES + MIN_CAPACITY * SLOT_BYTES)


def least_room(layout: ArenaLayout, workers: int, servers: int, share: Fraction = ALL) -> LeastRoom:
    """The minimum of an arena for `workers` workers and `servers` PS, which own this share of all rows."""
    model = layout.model
    dynamic = [model.embeddings_of(table.index) for table in model.tables if table.is_dynamic]
    firsts = (first_rows_bytes(len(es), sum(e.state_floats_per_row > 0 for e in es)) for es in dynamic)
    return LeastRoom(
        fixed=layout.bytes_without_rows + int(share * (layout.fixed_bytes - layout.bytes_without_rows)),
        mailboxes=2 * workers * layout.dense.mailbox_bytes,
        first_rows=int(share * sum(firsts)),
        spare=SPARE_BYTES * servers if dynamic else 0,
    )


def address_bytes(layout: ArenaLayout, workers: int) -> int:
    """Bytes of address space that a PS needs: it maps all files of the arena, its undo record, and the staging files of
    `workers` workers."""
    return layout.files.total + MAX_RECORD_BYTES + workers * MAX_PUSH_BYTES + OWN_ADDRESS_BYTES
