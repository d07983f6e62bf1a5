"""Reads the footers of Parquet files: columns, types and row groups; and finds the problems with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.datasets.api import DatasetDescription, Unit
from elastichost.datasets.arrow_columns import id_type, is_list, is_numeric
from elastichost.datasets.files import (
    FIRST_BYTES,
    FileStamp,
    current_stamp,
    find_files,
    is_url,
    other_than_parquet,
    with_hint,
)
from elastichost.datasets.parquet.footers import Footer, KeptFooters, remote_footers
from elastichost.datasets.reader import Inspection, units_of_split
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.remote_file import RemoteFile
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError
from elastichost.human_readable import did_you_mean
from elastichost.specs import KeyKind

__all__ = ["MAX_GROUP_ROWS", "ParquetFacts", "ParquetInspection", "inspect_parquet", "opened_parquet", "row_place"]

# A range in the middle of a group is decoded from the start of the group, and a decoded unit is kept in memory.
MAX_GROUP_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class ParquetFacts:
    """The footer of one file, and the path and number of the leaf of every column."""

    stamp: FileStamp
    metadata: pq.FileMetaData
    schema: pa.Schema
    leaf_paths: dict[str, str]
    leaf_numbers: dict[str, int]
    group_starts: tuple[int, ...]  # first row of each row group


@dataclass(frozen=True, slots=True)
class ParquetInspection:
    inspection: Inspection
    facts: tuple[ParquetFacts, ...]


def row_place(facts: ParquetFacts, group: int, position: int, skip: int = 0) -> str:
    """The text `file: row N (...)` for a position in a row group, after its first `skip` rows."""
    return (
        f"{facts.stamp.path}: row {facts.group_starts[group] + skip + position} (row group {group}, rows count from 0)"
    )


class _Problems:
    """Collects problems. Files with the same problem give one line together."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def add(self, path: str, text: str) -> None:
        self._paths.setdefault(text, []).append(path)

    def lines(self) -> tuple[str, ...]:
        return tuple(
            f"{paths[0]}{f' (and {len(paths) - 1} more files)' if len(paths) > 1 else ''}: {text}"
            for text, paths in self._paths.items()
        )


def inspect_parquet(
    settings: DataSettings, waiting: RequestPolicy, kept: KeptFooters, stores: OpenStores
) -> ParquetInspection:
    """Reads and checks the footers of all files. It opens each file once and reads no data pages. kept: footers of
    files at addresses that were read before."""
    files, missing = find_files(settings.patterns, settings.pinned, waiting)
    problems = _Problems()
    facts: list[ParquetFacts] = []
    remote = iter(_remote_footers(files, settings, waiting, kept, stores))
    for place, path in enumerate(files):
        found = _checked(next(remote), problems) if is_url(path) else _read_footer(path, place, settings, problems)
        if found is not None:
            facts.append(found)
    if not files and not missing:
        missing = (f"data.{settings.split}: names no file",)
    kinds, lists = _check_columns(facts, settings, problems)
    lines = (*missing, *problems.lines())
    if not facts or lines:
        return ParquetInspection(Inspection(None, lines), tuple(facts))
    description = _describe(tuple(facts), settings, kinds, lists)
    return ParquetInspection(Inspection(description, ()), tuple(facts))


def _remote_footers(
    files: Sequence[str], settings: DataSettings, waiting: RequestPolicy, kept: KeptFooters, stores: OpenStores
) -> list[tuple[str, Footer | DataError]]:
    """(address, footer or what is wrong) of the files at addresses, in their order."""
    places = [place for place, path in enumerate(files) if is_url(path)]
    urls = [files[place] for place in places]
    pinned = [settings.pinned[place] for place in places] if settings.pinned else []
    try:
        return list(zip(urls, remote_footers(urls, pinned, kept, waiting, stores), strict=True))
    finally:
        kept.close()


def _checked(found: tuple[str, Footer | DataError], problems: _Problems) -> ParquetFacts | None:
    url, footer = found
    if isinstance(footer, DataError):
        problems.add(url, with_hint(footer).removeprefix(f"{url}: "))
        return None
    return _facts_of(footer, problems)


def _read_footer(path: str, place: int, settings: DataSettings, problems: _Problems) -> ParquetFacts | None:
    try:
        file_stamp = current_stamp(path, settings.pinned, place)
        if file_stamp.size_bytes == 0:
            problems.add(path, "is empty (0 bytes)")
            return None
        with open(path, "rb") as file:
            other = other_than_parquet(path, file.read(FIRST_BYTES))
        if other is not None:
            problems.add(path, other)
            return None
        metadata = pq.read_metadata(path)
    except DataError as error:
        problems.add(path, error.message.removeprefix(f"{path}: "))
        return None
    except PermissionError as error:
        problems.add(path, f"cannot be read ({error.strerror}): check that you may read it")
        return None
    except (pa.ArrowException, OSError) as error:
        problems.add(path, f"not a readable Parquet file ({str(error).splitlines()[0]})")
        return None
    return _facts_of(Footer(file_stamp, metadata), problems)


def _facts_of(footer: Footer, problems: _Problems) -> ParquetFacts | None:
    path, metadata = footer.stamp.path, footer.metadata
    try:
        schema = metadata.schema.to_arrow_schema()
    except pa.ArrowException as error:
        problems.add(path, f"not a readable Parquet file ({str(error).splitlines()[0]})")
        return None
    if metadata.num_rows == 0:
        problems.add(path, "has no rows")
        return None
    starts, row = [], 0
    for group in range(metadata.num_row_groups):
        starts.append(row)
        row += metadata.row_group(group).num_rows
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        problems.add(path, f"has more than one column {twice[0]!r}: write the file with different column names")
        return None
    numbers = _leaf_numbers(schema)
    paths = {name: metadata.schema.column(number).path for name, number in numbers.items()}
    return ParquetFacts(footer.stamp, metadata, schema, paths, numbers, tuple(starts))


@contextmanager
def opened_parquet(of: FileStamp, waiting: RequestPolicy = BEFORE_RUN) -> Iterator[str | RemoteFile]:
    """What pyarrow opens for this file: its path, or a file at a URL whose parts are requested when they are read."""
    if not is_url(of.path):
        yield of.path
        return
    with RemoteFile(AddressedFile(of.path, of.size_bytes, of.modified_ns), waiting) as remote:
        yield remote


def _leaf_numbers(schema: pa.Schema) -> dict[str, int]:
    """The number of the first leaf of each top-level column. Leaves are numbered because the name of a list's element
    depends on the program that wrote the file."""
    numbers: dict[str, int] = {}
    leaf = 0
    for column in schema:
        numbers.setdefault(column.name, leaf)
        leaf += _leaf_count(column.type)
    return numbers


def _leaf_count(column_type: pa.DataType) -> int:
    if column_type.num_fields == 0:
        return 1
    return sum(_leaf_count(column_type.field(index).type) for index in range(column_type.num_fields))


def _check_columns(
    facts: list[ParquetFacts], settings: DataSettings, problems: _Problems
) -> tuple[dict[str, KeyKind], tuple[str, ...]]:
    """(kind of ids of every categorical column, the columns that hold lists). Adds to `problems`."""
    seen: dict[str, tuple[str, KeyKind, bool]] = {}
    for file in facts:
        path = file.stamp.path
        _check_numeric_columns(file, settings, problems)
        for name in settings.categorical:
            if name not in file.schema.names:
                problems.add(path, f"no column {name!r}{did_you_mean(name, file.schema.names)}")
                continue
            column_type = file.schema.field(name).type
            kind = settings.null_kinds.get(name) if _is_null(column_type) else id_type(column_type)
            if kind is None:
                problems.add(path, f"column {name!r} is {column_type}: ids are ints, strings, or lists of them")
                continue
            first_path, first_kind, first_is_list = seen.setdefault(name, (path, *kind))
            if (first_kind, first_is_list) != kind:
                problems.add(
                    path,
                    f"column {name!r} holds {_in_words(*kind)}, but {_in_words(first_kind, first_is_list)} "
                    f"in {first_path}",
                )
    kinds = {name: kind for name, (_, kind, _) in seen.items()}
    return kinds, tuple(name for name, (_, _, is_list) in seen.items() if is_list)


def _is_null(column_type: pa.DataType) -> bool:
    """Whether the column has no value: programs that infer types give it one of its own."""
    return bool(pa.types.is_null(column_type.value_type if is_list(column_type) else column_type))


def _in_words(kind: KeyKind, is_list: bool) -> str:
    return f"lists of {kind}s" if is_list else f"{kind}s"


def _check_numeric_columns(file: ParquetFacts, settings: DataSettings, problems: _Problems) -> None:
    wanted = dict.fromkeys(settings.labels, "a label")
    wanted |= {settings.weight: "a weight"} if settings.weight else {}
    wanted |= dict.fromkeys(settings.dense, "a dense value")
    for name, role in wanted.items():
        if name not in file.schema.names:
            if role != "a dense value" and not settings.labels_required:
                continue
            problems.add(file.stamp.path, f"no column {name!r}{did_you_mean(name, file.schema.names)}")
        elif not settings.labels_required and pa.types.is_null(file.schema.field(name).type):
            continue  # of rows that are scored, no one has a value
        elif not is_numeric(file.schema.field(name).type):
            found = f"column {name!r} is {file.schema.field(name).type}: {role} must be a number or bool"
            problems.add(file.stamp.path, f"{found}; {_remedy(name, role, settings)}")


def _remedy(name: str, role: str, settings: DataSettings) -> str:
    """What to do about a column of text that is named as numbers."""
    if role != "a dense value":
        return "write it as numbers" if role == "a weight" else "write it as 0 and 1"
    if name in settings.categorical:
        return "take it out of data.dense: it is in data.categorical too"
    return "move it from data.dense to data.categorical, or write it as numbers"


def _describe(
    facts: tuple[ParquetFacts, ...], settings: DataSettings, kinds: dict[str, KeyKind], lists: tuple[str, ...]
) -> DatasetDescription:
    units: list[Unit] = []
    warnings: list[str] = []
    first_sample = 0
    for file_number, file in enumerate(facts):
        largest = 0
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            largest = max(largest, rows)
            if rows:
                units.append(Unit(len(units), first_sample, rows, file_number, group))
            first_sample += rows
        if largest > MAX_GROUP_ROWS:
            warnings.append(
                f"{file.stamp.path}: row groups of up to {largest:,} rows are slow to share between workers "
                f"and large in memory; write the file with 65,536 rows in a row group"
            )
    kept = units_of_split(units, settings)
    return DatasetDescription(
        samples=sum(unit.samples for unit in kept),
        units=kept,
        files=tuple(file.stamp.path for file in facts),
        key_kinds=kinds,
        multi_valued=tuple(name for name in settings.categorical if name in lists),
        num_dense=len(settings.dense),
        num_labels=len(settings.labels),
        warnings=tuple(warnings),
    )
