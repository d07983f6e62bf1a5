"""The decoder of text files. A unit is a range of lines; the line index has its byte offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.datasets.api import DatasetDescription, Unit
from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.decoded import DecodedUnit
from elastichost.datasets.files import (
    GZIP_MAGIC,
    PARQUET_MAGIC,
    FileStamp,
    check_pinned,
    check_unchanged,
    current_stamp,
    find_files,
    gzip_problem,
    is_url,
    opened,
    with_hint,
)
from elastichost.datasets.id_ranges import find_id_out_of_range, ranged_tables
from elastichost.datasets.reader import Inspection, ValueFindings, units_of_split
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.tabular import nan_warnings
from elastichost.datasets.text.first_lines import TextBegin, remote_begins
from elastichost.datasets.text.line_index import TextIndex, index_text_file, line_end, read_first_line
from elastichost.datasets.text.plain_copy import PlainCopies
from elastichost.errors import DataError, SourceGoneError
from elastichost.specs import KeyKind, TableSpec

__all__ = ["LineFormat", "TextDecoder"]

HEAD_BYTES = 65_536


class LineFormat(Protocol):
    """A text format: how its lines become samples."""

    @property
    def name(self) -> str: ...

    @property
    def header_lines(self) -> int:
        """1 when the first line names the columns, else 0."""
        ...

    def key_kinds(self) -> dict[str, KeyKind]: ...

    def multi_valued(self) -> tuple[str, ...]: ...

    def check_first_line(self, path: str, line: bytes) -> tuple[str, ...]:
        """The problems with the columns of a file. It is called once for each file, before its lines are parsed."""
        ...

    def parse(self, path: str, data: npt.NDArray[np.uint8], lines: int, first_line: int, log: BadRowLog) -> DecodedUnit:
        """Decodes `data`: uint8, `lines` whole lines. `first_line`: the number of the first one in the file, from 1."""
        ...


@dataclass(frozen=True, slots=True)
class _TextFile:
    """told: of the file that the job names. stamp: of what is read, which is the plain copy of a compressed file."""

    told: FileStamp
    stamp: FileStamp
    index: TextIndex

    @property
    def path(self) -> str:
        return self.told.path


class TextDecoder:
    """The `Decoder` of text files in any line format. connections: for files at URLs; None: one request at a time."""

    def __init__(
        self,
        settings: DataSettings,
        line_format: LineFormat,
        environ: Mapping[str, str],
        connections: SourceConnections | None = None,
        waiting: RequestPolicy = BEFORE_RUN,
    ) -> None:
        self._settings, self._connections, self._waiting = settings, connections, waiting
        self._format = line_format
        self._environ, self._copies = environ, PlainCopies(environ, waiting)
        self._files: tuple[_TextFile, ...] = ()
        self._units: tuple[Unit, ...] = ()

    def inspect(self) -> Inspection:
        paths, missing = find_files(self._settings.patterns, self._settings.pinned, self._waiting)
        problems, warnings, files = list(missing), [], []
        if not paths and not missing:
            problems.append(f"data.{self._settings.split}: names no file")
        begins = remote_begins([path for path in paths if is_url(path)], self._waiting)
        for place, path in enumerate(paths):
            try:
                begin = self._begin(path, place, begins)
                file, warning = self._open(begin, problems)
            except SourceGoneError:
                raise  # other files need not be asked
            except DataError as error:
                problems.append(with_hint(error) if is_url(path) else error.message)
                continue
            except OSError as error:
                problems.append(f"{path}: cannot be read ({error.strerror})")
                continue
            files.extend([file] if file else [])
            warnings.extend([warning] if warning else [])
        if problems or not files:
            return Inspection(None, tuple(problems))
        self._files = tuple(files)
        self._units = self._make_units()
        return Inspection(self._describe(tuple(warnings)), ())

    def decode(self, unit: Unit) -> DecodedUnit:
        """See `Decoder.decode`. Raises DataError for a bad row, or for a file that changed since `inspect`."""
        log = BadRowLog(unit.samples)
        decoded = self._parse(unit, log)
        return replace(
            decoded, bad=log.settle(skip=self._settings.skip_bad_rows, how_to_skip=self._settings.how_to_skip)
        )

    def stamps(self) -> tuple[FileStamp, ...]:
        return tuple(file.told for file in self._files)

    def check_unchanged(self, unit: Unit) -> None:
        check_unchanged(self._files[unit.file].stamp)

    def stored_bytes(self, unit: Unit) -> float:
        """The bytes of the unit's lines, with all columns. For a unit that is cut short: its share of them."""
        index = self._files[unit.file].index
        start, stop = index.byte_range(unit.group)
        return (stop - start) * unit.samples / index.lines_of(unit.group)

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        """See `Decoder.check_values`. Only the first 64 KiB of each file are checked."""
        bad_rows: list[str] = []
        ids: list[str] = []
        warnings: list[str] = []
        ranged = ranged_tables(tables)
        for unit in self._units:
            if unit.group != 0:
                continue
            head = self._head(unit)
            log = BadRowLog(head.samples)
            try:
                decoded = self._parse(head, log)
            except DataError as error:
                bad_rows.append(error.message)
                continue
            bad_rows.extend([log.first[1]] if log.first else [])
            warnings.extend(nan_warnings(self._files[unit.file].path, log, self._settings))
            place = partial(self._line_place, self._files[unit.file].path, unit.skip)
            ids.extend(find_id_out_of_range(decoded, self._settings.categorical, ranged, place))
        return ValueFindings(tuple(bad_rows), tuple(ids), tuple(warnings))

    def _begin(self, path: str, place: int, remote: Mapping[str, TextBegin | DataError]) -> TextBegin:
        """The begin of a file, which is the one that a run has begun with. Raises DataError, OSError."""
        pinned = self._settings.pinned
        if not is_url(path):
            stamp = current_stamp(path, pinned, place)
            return TextBegin(stamp, read_first_line(stamp))
        begin = remote[path]
        if isinstance(begin, DataError):
            raise begin
        if pinned:
            check_pinned(begin.stamp, pinned[place])
        return begin

    def _open(self, begin: TextBegin, problems: list[str]) -> tuple[_TextFile | None, str | None]:
        told = file_stamp = begin.stamp
        path, first_line = told.path, begin.first_line
        if file_stamp.size_bytes == 0:
            problems.append(f"{path}: is empty (0 bytes)")
            return None, None
        if first_line.startswith(PARQUET_MAGIC):
            problems.append(f'{path}: is a Parquet file; set data.format = "parquet"')
            return None, None
        if is_url(path) and first_line.startswith(GZIP_MAGIC):
            file_stamp = self._copies.copy_of(file_stamp)
            first_line = read_first_line(file_stamp, self._waiting)
        if compressed := gzip_problem(path, first_line, self._format.name, self._settings.csv_types):
            problems.append(compressed)
            return None, None
        found = self._format.check_first_line(path, first_line)
        problems.extend(found)
        if found:
            return None, None
        index, warning = index_text_file(
            file_stamp,
            unit_lines=self._settings.text_unit_lines,
            header_lines=self._format.header_lines,
            environ=self._environ,
            waiting=self._waiting,
        )
        if index.lines == 0:
            problems.append(f"{path}: has no rows")
            return None, None
        return _TextFile(told, file_stamp, index), warning

    def _make_units(self) -> tuple[Unit, ...]:
        units: list[Unit] = []
        first_sample = 0
        for number, file in enumerate(self._files):
            for group in range(len(file.index.starts)):
                lines = file.index.lines_of(group)
                units.append(Unit(len(units), first_sample, lines, number, group))
                first_sample += lines
        return units_of_split(units, self._settings)

    def _describe(self, warnings: tuple[str, ...]) -> DatasetDescription:
        return DatasetDescription(
            samples=sum(unit.samples for unit in self._units),
            units=self._units,
            files=tuple(file.path for file in self._files),
            key_kinds=self._format.key_kinds(),
            multi_valued=self._format.multi_valued(),
            num_dense=len(self._settings.dense),
            num_labels=len(self._settings.labels),
            warnings=warnings,
        )

    def _parse(self, unit: Unit, log: BadRowLog) -> DecodedUnit:
        file = self._files[unit.file]
        check_unchanged(file.stamp)
        start, stop = file.index.byte_range(unit.group)
        data = self._read_bytes(file.stamp, start, stop)
        if unit.skip:
            data = data[line_end(data, unit.skip) :]
        if unit.skip + unit.samples < file.index.lines_of(unit.group):
            data = data[: line_end(data, unit.samples)]
        first_line = 1 + self._format.header_lines + unit.group * file.index.unit_lines + unit.skip
        return self._format.parse(file.path, data, unit.samples, first_line, log)

    def _read_bytes(self, file: FileStamp, start: int, stop: int) -> npt.NDArray[np.uint8]:
        if is_url(file.path) and self._connections is not None:
            remote = AddressedFile(file.path, file.size_bytes, file.modified_ns)
            return np.frombuffer(self._connections.fetch(remote, ((start, stop),))[0], dtype=np.uint8)
        return _read_bytes(file, start, stop, self._waiting)

    def _line_place(self, path: str, skipped: int, row: int) -> str:
        """skipped: rows of the file before those that are checked, as where the last rows are test data."""
        return f"{path}: line {1 + self._format.header_lines + skipped + row}"

    def _head(self, unit: Unit) -> Unit:
        """The part of a file's first unit whose lines end within the first HEAD_BYTES; at least one line."""
        file = self._files[unit.file]
        start, stop = file.index.byte_range(unit.group)
        data = self._read_bytes(file.stamp, start, min(stop, start + HEAD_BYTES))
        lines = max(1, int(np.count_nonzero(data == ord("\n"))))
        return msgspec.structs.replace(unit, samples=min(lines, unit.samples))


def _read_bytes(file: FileStamp, start: int, stop: int, waiting: RequestPolicy) -> npt.NDArray[np.uint8]:
    with opened(file, waiting) as handle:
        handle.seek(start)
        data = np.empty(stop - start, dtype=np.uint8)
        view, filled = data.data, 0
        while filled < len(data):
            read = handle.readinto(view[filled:])
            if not read:
                raise DataError(
                    f"{file.path}: ends at byte {start + filled:,}, but its last line ended at byte {stop:,} before: "
                    "the file was cut",
                    hint="do not change data files while a job runs",
                )
            filled += read
    return data
