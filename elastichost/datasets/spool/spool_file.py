"""The Parquet file of spooled rows. It appears under its name when it is complete and on the disk.

Until then the rows are in a partial file beside it, on which the process that writes it has a lock. The kernel drops
the lock when the process dies, so the next process that needs the rows begins the partial file anew. The footer holds
the identity of the rows; a file with another identity is not used."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.atomic_write import cause_words
from elastichost.datasets.parquet.group_writer import write_groups
from elastichost.datasets.spool.row_tables import RowTables
from elastichost.errors import DataError
from elastichost.human_readable import did_you_mean

__all__ = ["SpoolPlan", "spooled_rows", "write_spool"]

KEY = "elastichost.rows"  # of the footer


@dataclass(frozen=True, slots=True)
class SpoolPlan:
    """What a spool is to be. title: names the rows in messages. identity: of the rows; equal identities are equal rows.
    unit_rows: rows of a row group. schema: None: inferred. needed: columns that the job reads, which must be there.
    earlier: a file that may have the same rows already; None: there is none."""

    title: str
    identity: str
    unit_rows: int
    schema: pa.Schema | None = None
    needed: tuple[str, ...] = ()
    earlier: Path | None = None


def spooled_rows(path: Path, identity: str) -> int | None:
    """The number of rows of a complete spool with this identity; None if the file is absent or another one."""
    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return None
    kept = (footer.metadata or {}).get(KEY.encode(), b"")
    return int(footer.num_rows) if kept == identity.encode() else None


def write_spool(
    path: Path,
    plan: SpoolPlan,
    items: Callable[[], Iterable[object]],
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Makes sure that the rows are at `path`, and returns their number. `items` is called when they must be read;
    progress is called with the number of rows so far.

    A spool of these rows at `path` is used as it is; one at `plan.earlier` is linked. Raises DataError for rows that do
    not fit, that lack a needed column, that cannot be written, or that another process writes now; the file is then
    absent, or as before. What `items` raises passes through."""
    of_source: list[OSError] = []
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _owned(path.with_name(f".{path.name}.partial")) as (partial, file):
            rows = spooled_rows(path, plan.identity)
            if rows is None and plan.earlier is not None:
                rows = _linked(path, plan.earlier, plan.identity)
            if rows is None:
                rows = _write(file, plan, _noting(items, of_source), progress)
                partial.replace(path)
    except OSError as error:
        if any(one is error for one in of_source):
            raise
        raise DataError(
            f"{path}: the rows cannot be written there ({cause_words(error)})",
            hint="check the free space of the disk, and your permission to write there",
        ) from error
    return rows


def _noting(items: Callable[[], Iterable[object]], noted: list[OSError]) -> Iterator[object]:
    """The items. An OSError of what yields them is noted: it is not one of the disk that is written to."""
    try:
        yield from items()
    except OSError as error:
        noted.append(error)
        raise


@contextlib.contextmanager
def _owned(partial: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The partial file, empty and locked; on exit it is removed, unless it was renamed."""
    with _locked(partial) as file:
        file.truncate(0)
        try:
            yield partial, file
        finally:
            if _is_at(file, partial):
                partial.unlink()


def _locked(partial: Path) -> BinaryIO:
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        file = open(descriptor, "r+b")  # noqa: SIM115 - the caller closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            path = partial.with_name(partial.name[1:].removesuffix(".partial"))
            raise DataError(
                f"{path}: another process writes these rows now",
                hint="wait until it trains, then start again; or give the rows another name, or the run another dir",
            ) from None
        if _is_at(file, partial):
            return file
        file.close()  # that process has just ended, and has renamed or removed the file


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _linked(path: Path, earlier: Path, identity: str) -> int | None:
    """The number of rows of the earlier spool, which is then at `path`, too; None: it is gone, or has other rows."""
    rows = spooled_rows(earlier, identity)
    if rows is None:
        return None
    link = path.with_name(f".{path.name}.link")
    link.unlink(missing_ok=True)
    try:
        os.link(earlier, link)
    except OSError:  # on another file system, or one without links
        shutil.copyfile(earlier, link)
    link.replace(path)
    return rows


def _write(file: BinaryIO, plan: SpoolPlan, items: Iterable[object], progress: Callable[[int], None]) -> int:
    written = 0

    def count(rows: int) -> None:
        nonlocal written
        written = rows
        progress(rows)

    tables = _with_needed(RowTables(plan.title, plan.unit_rows, plan.schema).tables(items), plan)
    write_groups(file, tables, plan.unit_rows, metadata={KEY: plan.identity}, progress=count)
    if not written:
        raise DataError(f"{plan.title}: there is no row", hint="an iterator can be read only once: give a function")
    file.flush()
    os.fsync(file.fileno())
    return written


def _with_needed(tables: Iterator[pa.Table], plan: SpoolPlan) -> Iterator[pa.Table]:
    """The tables; raises DataError before the first one if it lacks a column that the job reads."""
    is_first = True
    for table in tables:
        if is_first:
            missing = [name for name in plan.needed if name not in table.column_names]
            if missing:
                raise DataError(
                    f"{plan.title}: the rows have no column {missing[0]!r}"
                    f"{did_you_mean(missing[0], table.column_names)}",
                    hint=f"their columns: {', '.join(table.column_names)}",
                )
            is_first = False
        yield table
