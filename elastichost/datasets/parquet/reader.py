"""The decoder of Parquet files. A row group is a unit. Only the needed columns are read; strings stay encoded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.datasets.api import Unit
from elastichost.datasets.arrow_columns import id_type
from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.decoded import DecodedUnit
from elastichost.datasets.files import FileStamp, check_unchanged, is_url
from elastichost.datasets.parquet.footers import KeptFooters
from elastichost.datasets.parquet.schema import ParquetFacts, inspect_parquet, row_place
from elastichost.datasets.parquet.values import check_parquet_values
from elastichost.datasets.reader import Inspection, ValueFindings
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.byte_ranges import ByteRange, joined_ranges
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.remote_file import FetchedFile, RemoteFile
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.datasets.tabular import decode_table, dense_matrix, nan_warnings
from elastichost.errors import DataError
from elastichost.specs import TableSpec

__all__ = ["ParquetDecoder"]

GAP_BYTES = 1 << 16  # ranges with no more between them are fetched as one


class ParquetDecoder:
    """The `Decoder` of Parquet files. Each thread keeps at most one file open. footers: the directory where the footers
    of files at addresses are kept; None: they are not."""

    def __init__(
        self,
        settings: DataSettings,
        connections: SourceConnections | None = None,
        waiting: RequestPolicy = BEFORE_RUN,
        footers: Path | None = None,
    ) -> None:
        self._settings, self._connections, self._waiting = settings, connections, waiting
        self._footers, self._stores = footers, OpenStores(waiting.stall_s)
        self._facts: tuple[ParquetFacts, ...] = ()
        self._inspection: Inspection | None = None
        self._of_thread = threading.local()

    def inspect(self) -> Inspection:
        found = inspect_parquet(self._settings, self._waiting, KeptFooters(self._footers), self._stores)
        self._facts, self._inspection = found.facts, found.inspection
        return found.inspection

    def decode(self, unit: Unit) -> DecodedUnit:
        """See `Decoder.decode`. Raises DataError for a bad row, a damaged row group, or a file that changed since
        `inspect`."""
        facts = self._facts[unit.file]
        check_unchanged(facts.stamp)
        table = self._read_group(facts, unit)
        log = BadRowLog(unit.samples)
        decoded = decode_table(table, self._settings, log, partial(row_place, facts, unit.group, skip=unit.skip))
        return replace(
            decoded, bad=log.settle(skip=self._settings.skip_bad_rows, how_to_skip=self._settings.how_to_skip)
        )

    def stamps(self) -> tuple[FileStamp, ...]:
        return tuple(facts.stamp for facts in self._facts)

    def check_unchanged(self, unit: Unit) -> None:
        check_unchanged(self._facts[unit.file].stamp)

    def stored_bytes(self, unit: Unit) -> float:
        """The compressed bytes of the columns that are read. For a row group that is cut short: its share of them."""
        facts = self._facts[unit.file]
        group = facts.metadata.row_group(unit.group)
        leaves = [facts.leaf_numbers[name] for name in self._settings.columns if name in facts.leaf_numbers]
        pages_bytes = sum(group.column(leaf).total_compressed_size for leaf in leaves)
        return float(pages_bytes * unit.samples / group.num_rows)

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        if self._inspection is None or self._inspection.description is None:
            return ValueFindings()
        units = self._inspection.description.units
        found = check_parquet_values(self._settings, self._facts, units, tables)
        return replace(found, warnings=(*found.warnings, *self._nan_warnings(units[0])))

    def _nan_warnings(self, unit: Unit) -> tuple[str, ...]:
        """Those of the first unit, as statistics do not count NaN. A file at an address is not read for them, and one
        that cannot be read has its error elsewhere."""
        facts, settings = self._facts[unit.file], self._settings
        floats = [name for name in settings.dense if pa.types.is_floating(facts.schema.field(name).type)]
        if not floats or is_url(facts.stamp.path):
            return ()
        log = BadRowLog(unit.samples)
        try:
            table = self._read_group(facts, unit, floats)
        except DataError:
            return ()
        dense_matrix(table, replace(settings, dense=tuple(floats)), log, str)
        return nan_warnings(facts.stamp.path, log, settings)

    def _read_group(self, facts: ParquetFacts, unit: Unit, columns: Sequence[str] = ()) -> pa.Table:
        """columns: of the table; none: all that the job reads."""
        names = [name for name in columns or self._settings.columns if name in facts.leaf_paths]
        try:
            file = self._fetched(facts, unit, names) if is_url(facts.stamp.path) else self._file(facts)
            paths = [facts.leaf_paths[name] for name in names]
            table = file.read_row_group(unit.group, columns=paths, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{facts.stamp.path}: row group {unit.group} cannot be read ({str(error).splitlines()[0]})",
                hint="the file is damaged: write or copy it again",
            ) from error
        return table.slice(unit.skip, unit.samples)

    def _file(self, facts: ParquetFacts) -> pq.ParquetFile:
        is_open: tuple[ParquetFacts, pq.ParquetFile] | None = getattr(self._of_thread, "open", None)
        if is_open is not None:
            if is_open[0] is facts:
                return is_open[1]
            is_open[1].close()
            self._of_thread.open = None
        file = self._opened(facts, facts.stamp.path)
        self._of_thread.open = (facts, file)
        return file

    def _fetched(self, facts: ParquetFacts, unit: Unit, names: Sequence[str]) -> pq.ParquetFile:
        """The file, of which the columns of one row group were fetched."""
        remote = AddressedFile(facts.stamp.path, facts.stamp.size_bytes, facts.stamp.modified_ns)
        if self._connections is None:
            return self._opened(facts, RemoteFile(remote, self._waiting, self._stores))
        group = facts.metadata.row_group(unit.group)
        ranges = joined_ranges((column_range(group.column(facts.leaf_numbers[name])) for name in names), GAP_BYTES)
        parts = self._connections.fetch(remote, ranges)
        return self._opened(facts, FetchedFile(remote.size_bytes, ranges, parts))

    def _opened(self, facts: ParquetFacts, source: str | RemoteFile | FetchedFile) -> pq.ParquetFile:
        strings = [name for name in self._settings.categorical if _holds_strings(facts.schema.field(name).type)]
        return pq.ParquetFile(
            source,
            metadata=facts.metadata,
            read_dictionary=[facts.leaf_paths[name] for name in strings],
            pre_buffer=False,
        )


def column_range(column: pq.ColumnChunkMetaData) -> ByteRange:
    """The bytes of a column in a row group: its dictionary, if it has one, and its pages."""
    offsets = [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset:
        offsets.append(column.dictionary_page_offset)
    return min(offsets), min(offsets) + column.total_compressed_size


def _holds_strings(column_type: pa.DataType) -> bool:
    kind = id_type(column_type)
    return kind is not None and kind[0] == "string"
