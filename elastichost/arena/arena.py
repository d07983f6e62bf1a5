"""The mapped arena: views of every table's rows, optimizer state, ids and index, for any process of the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import kernel_ready
from elastichost.arena.files import MORE_ROOM, MappedFile
from elastichost.arena.host import free_bytes
from elastichost.arena.index.table import lookup_dynamic
from elastichost.arena.layout import HEADER_WORDS, ArenaLayout
from elastichost.arena.memory_board import UNLIMITED, Allowance, MemoryBoard
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError, ArenaFullError
from elastichost.specs import ModelSpec

__all__ = ["Arena", "ArenaFiles", "IndexPlace", "read_layout"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]
UInt16 = npt.NDArray[np.uint16]
Rows = Float32 | UInt16

LAYOUT_FILE = "LAYOUT.json"


@dataclass(frozen=True, slots=True)
class ArenaFiles:
    """The mapped files of an arena. Only `Arena` and the writer of a table use them directly."""

    rows: MappedFile
    state: MappedFile
    ids: MappedFile
    seen: MappedFile
    index: MappedFile
    control: MappedFile
    dense: MappedFile

    def all(self) -> tuple[MappedFile, ...]:
        return (self.rows, self.state, self.ids, self.seen, self.index, self.control, self.dense)


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """Where the index of one dynamic table lies. The index kernels take these values as their first arguments."""

    slots: Int64
    control: Int64
    first_header: int
    first_slot: int
    region_slots: int
    bucket_rows: int
    shift: int
    index_key: int

    def header_word(self, bucket: int) -> int:
        """Position of the bucket's first header word in `control`."""
        return (self.first_header + bucket) * HEADER_WORDS

    def bucket_slot(self, bucket: int) -> int:
        """Number of the first slot of the bucket's region in `slots`."""
        return self.first_slot + bucket * self.region_slots


def _open_files(directory: Path, layout: ArenaLayout, *, create: bool) -> ArenaFiles:
    opened: list[MappedFile] = []
    make = MappedFile.create if create else MappedFile.attach
    try:
        for name, size_bytes in msgspec.structs.asdict(layout.files).items():
            opened.append(make(directory / name, size_bytes))
    except ArenaError:
        for file in opened:
            file.close()
        raise
    return ArenaFiles(*opened)


def _write_layout(directory: Path, layout: ArenaLayout) -> None:
    """Call it last: a process that finds LAYOUT.json finds a complete arena. Raises ArenaError."""
    making = directory / f"{LAYOUT_FILE}.new"
    try:
        making.touch(mode=0o600)
        making.write_bytes(msgspec.json.encode(layout))
        making.rename(directory / LAYOUT_FILE)
    except OSError as error:  # as when another process has taken the last free page
        making.unlink(missing_ok=True)
        raise ArenaError(f"cannot write {directory / LAYOUT_FILE}: {error}", hint=MORE_ROOM) from error


def read_layout(directory: Path) -> ArenaLayout:
    """The layout of the arena in a directory. Raises ArenaError when the directory holds no complete arena."""
    try:
        return msgspec.json.decode((directory / LAYOUT_FILE).read_bytes(), type=ArenaLayout)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "check whether the run that made the arena has ended"
        raise ArenaError(f"{directory} is not an arena: {error}", hint=hint) from error


class Arena:
    """A job's arena on this host, mapped into this process.

    Any process may attach. The arena does not enforce write access: each word and each row has one process that may
    write it, and callers keep to that. `allowance` limits what this process may allocate for new rows; a PS sets it.
    """

    def __init__(self, directory: Path, layout: ArenaLayout, files: ArenaFiles) -> None:
        self.directory = directory
        self.layout = layout
        self.files = files
        self.board = MemoryBoard(directory, len(layout.model.tables))
        self.allowance: Allowance = UNLIMITED
        sizes = layout.files
        self.rows_flat: Float32 = files.rows.array(np.float32, 0, sizes.rows // 4)
        self.rows_flat_half: UInt16 = files.rows.array(np.uint16, 0, sizes.rows // 2)  # the same file, as bfloat16
        self.state_flat: Float32 = files.state.array(np.float32, 0, sizes.state // 4)
        self.control: Int64 = files.control.array(np.int64, 0, sizes.control // 8)
        self._prefer_huge_pages()
        self._slots: Int64 = files.index.array(np.int64, 0, sizes.index // 8)
        self._places: list[IndexPlace | None] = [
            self._index_place(table.index) if table.is_dynamic else None for table in layout.model.tables
        ]

    @classmethod
    def create(cls, directory: Path, layout: ArenaLayout, *, whole: bool = True) -> Arena:
        """Makes the files in an existing directory (see `host.create_directory`) and allocates what has a fixed size.

        whole: this arena holds all rows of the fixed tables, so they are allocated here. Otherwise the PS that owns a
        bucket allocates its rows (`bucket_space`), and only the headers and the dense part need room here. Raises
        ArenaFullError with the needed and the free bytes before any file is made, and ArenaError.
        """
        needed, what = layout.fixed_bytes, "the fixed tables and the dense part"
        if not whole:
            needed, what = layout.bytes_without_rows, "the headers and the dense part"
        free = free_bytes(directory)
        if needed > free:
            raise ArenaFullError(f"{what} need {needed} bytes in {directory}, {free} are free", hint=MORE_ROOM)
        files = _open_files(directory, layout, create=True)
        try:
            MemoryBoard.create(directory, len(layout.model.tables))
            arena = cls(directory, layout, files)
            arena._allocate_fixed()
            if whole:
                arena._allocate_rows()
            Watermarks.create(directory)
            _write_layout(directory, layout)
        except ArenaError:
            for file in files.all():
                file.close()
                file.path.unlink()
            MemoryBoard.remove(directory)
            raise
        return arena

    @classmethod
    def attach(cls, directory: Path) -> Arena:
        """Maps an arena that another process made. Raises ArenaError when it is missing or malformed."""
        layout = read_layout(directory)
        return cls(directory, layout, _open_files(directory, layout, create=False))

    def _allocate_fixed(self) -> None:
        layout, files = self.layout, self.files
        files.control.allocate(0, layout.files.control, "the arena's headers")
        files.dense.allocate(0, layout.dense.mailbox_offset, "the dense part")

    def _allocate_rows(self) -> None:
        layout, files = self.layout, self.files
        for embedding in layout.model.embeddings:
            table = layout.model.tables[embedding.table]
            if table.is_dynamic:
                continue
            purpose, rows = f"embedding {embedding.name!r}", layout.row_space(table.index)
            size = embedding.bytes_per_element
            files.rows.allocate(size * layout.rows_offset(embedding.index), size * rows * embedding.padded_dim, purpose)
            if embedding.state_floats_per_row:
                files.state.allocate(
                    4 * layout.state_offset(embedding.index), 4 * rows * embedding.state_floats_per_row, purpose
                )

    def _prefer_huge_pages(self) -> None:
        """Asks for huge pages for the rows of fixed tables. The rows of a dynamic table are allocated in small steps:
        with huge pages the table would take far more memory than its rows need."""
        layout, files = self.layout, self.files
        for e in layout.model.embeddings:
            if layout.model.tables[e.table].is_dynamic:
                continue
            rows, size = layout.row_space(e.table), e.bytes_per_element
            files.rows.prefer_huge_pages(size * layout.rows_offset(e.index), size * rows * e.padded_dim)
            if e.state_floats_per_row:
                files.state.prefer_huge_pages(4 * layout.state_offset(e.index), 4 * rows * e.state_floats_per_row)

    @property
    def model(self) -> ModelSpec:
        return self.layout.model

    def rows_view(self, embedding: int) -> Rows:
        """The weights of an embedding: float32, or bfloat16 as uint16, [row_space, padded_dim], writable and shared."""
        spec, offset = self.model.embeddings[embedding], self.layout.rows_offset(embedding)
        elements = self.layout.row_space(spec.table) * spec.padded_dim
        flat: Rows = self.rows_flat_half if spec.precision == "bfloat16" else self.rows_flat
        return flat[offset : offset + elements].reshape(-1, spec.padded_dim)

    def state_view(self, embedding: int) -> Float32 | None:
        """The optimizer state of an embedding: float32 [row_space] with one float a row (row-wise Adagrad), else
        [row_space, floats of state a row] (Adagrad: padded_dim); None without state (SGD)."""
        spec, offset = self.model.embeddings[embedding], self.layout.state_offset(embedding)
        if offset < 0:
            return None
        floats = spec.state_floats_per_row
        flat = self.state_flat[offset : offset + self.layout.row_space(spec.table) * floats]
        return flat if floats == 1 else flat.reshape(-1, floats)

    def _require_dynamic(self, table: int) -> None:
        if not self.model.tables[table].is_dynamic:
            raise ArenaError(f"table {self.model.tables[table].name!r} has a fixed size, so it has no ids and no index")

    def ids_view(self, table: int) -> Int64:
        """The id of each row of a dynamic table: int64 [row_space], valid where `seen` is not 0."""
        self._require_dynamic(table)
        return self.files.ids.array(np.int64, 8 * self.layout.ids_offset(table), self.layout.row_space(table))

    def seen_view(self, table: int) -> UInt32:
        """When each row of a dynamic table was last seen: uint32 [row_space] of `kernels.seen_stamp`; 0: free row."""
        self._require_dynamic(table)
        return self.files.seen.array(np.uint32, 4 * self.layout.seen_offset(table), self.layout.row_space(table))

    def header(self, table: int, bucket: int) -> Int64:
        """The bucket's control header: int64 [16]; `index.table` names the words."""
        first = self.layout.header_number(table, bucket) * HEADER_WORDS
        return self.control[first : first + HEADER_WORDS]

    def _index_place(self, table: int) -> IndexPlace:
        place = self.layout.tables[table]
        return IndexPlace(
            slots=self._slots,
            control=self.control,
            first_header=place.first_header,
            first_slot=place.slot_offset,
            region_slots=place.region_slots,
            bucket_rows=place.bucket_rows,
            shift=64 - place.buckets.bit_length() + 1,
            index_key=self.layout.index_key,
        )

    def index_place(self, table: int) -> IndexPlace:
        """The arguments that the index kernels take for a table. Raises ArenaError for a fixed table."""
        place = self._places[table]
        if place is None:
            self._require_dynamic(table)
            raise AssertionError("unreachable: every dynamic table has an index")
        return place

    def lookup(self, table: int, keys: Int64, out: Int64) -> int:
        """Writes the row numbers of keys (int64 [n]) of a dynamic table into out (int64 [n]); -1 is a miss.

        Row numbers are in the table's row space. Returns the number of misses; the caller asks the bucket's PS for
        them. Takes no lock and allocates nothing; any process may call it.
        """
        place = self.index_place(table)
        if len(out) < len(keys):
            raise ValueError(f"out has {len(out)} elements for {len(keys)} keys")
        return lookup_dynamic(
            place.slots,
            place.control,
            place.first_header,
            place.first_slot,
            place.region_slots,
            place.bucket_rows,
            place.shift,
            place.index_key,
            kernel_ready(keys),
            out,
        )

    # --- which rows are kept ----------------------------------------------------------------------------------

    def admit_after(self, table: int) -> int:
        """How often an id of a dynamic table has to be seen before it gets a row: the larger of the job file's value
        and the supervisor's, which is raised to save memory."""
        return max(self.model.tables[table].admit_after, self.board.admit_after(table))

    def evict_after(self, table: int) -> int:
        """After how many samples without a sighting a row of a dynamic table is dropped; 0: no row is dropped. The
        smaller of the job file's value and the supervisor's, which is set to save memory."""
        ages = (self.model.tables[table].evict_after_samples, self.board.horizon(table))
        return min((age for age in ages if age > 0), default=0)

    def notes_seen(self, table: int) -> bool:
        """Whether workers stamp the rows of a dynamic table when they use them. If so the ages of its rows are known,
        and a worker may stamp a row after it was dropped."""
        return self.model.tables[table].evict_after_samples > 0 or self.board.notes_seen

    def touched_bytes(self) -> int:
        """Bytes of memory (or disk) that the arena's files occupy, without the holes of sparse files."""
        return sum(file.touched_bytes() for file in self.files.all())

    def close(self) -> None:
        """Unmaps the files, which stay in the directory. A view that is still in use keeps its file mapped."""
        empty = np.zeros(0, np.int64)
        self.rows_flat = self.state_flat = np.zeros(0, np.float32)
        self.control = self._slots = empty
        self._places = []
        self.board.close()
        for file in self.files.all():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
