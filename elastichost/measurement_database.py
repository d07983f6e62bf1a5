"""Opens the SQLite files to which a process writes measurements: metrics.db of a run, timeline.db of a dispatcher.

They are written without waiting for the disk (`synchronous=OFF`), because the loss of a last second does not matter. So
a loss of power can leave a file that SQLite cannot read. A run must go on nevertheless: measurements are not worth it.
"""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path
from typing import NamedTuple

__all__ = ["MeasurementDatabase", "connected", "damaged_files", "open_database"]

DAMAGED = ".damaged-"
PATIENCE_S = 0.1  # longest wait for another program that holds the file: its writer has other work
BESIDE = ("-wal", "-shm")  # files that SQLite keeps beside a database, by the ends of their names


class MeasurementDatabase(NamedTuple):
    """An open database. set_aside: where the damaged file is that was there before; None: there was none."""

    connection: sqlite3.Connection
    set_aside: Path | None = None


def open_database(path: Path, schema: str) -> MeasurementDatabase:
    """Opens the database for its one writer, and creates it and its tables when they are missing. `schema`: SQL that
    may be run again. A damaged file is renamed to NAME.damaged-N, and a new one is begun. Raises sqlite3.Error for
    other errors, OSError when a damaged file cannot be renamed."""
    try:
        return MeasurementDatabase(_opened(path, schema))
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
    aside = next(one for number in count(1) if not (one := path.with_name(f"{path.name}{DAMAGED}{number}")).exists())
    path.rename(aside)
    for end in BESIDE:
        path.with_name(path.name + end).unlink(missing_ok=True)
    return MeasurementDatabase(_opened(path, schema), aside)


def damaged_files(path: Path) -> tuple[Path, ...]:
    """The files that were damaged before this database was begun."""
    return tuple(path.parent.glob(f"{path.name}{DAMAGED}*"))


def connected(path: Path, schema: str) -> sqlite3.Connection:
    """A further connection of the process that writes the database, with tables of its own. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=PATIENCE_S)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        connection.executescript(schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(path: Path, schema: str) -> sqlite3.Connection:
    is_new = not path.exists()
    connection = connected(path, schema)
    try:
        if not is_new:
            _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError with SQLITE_CORRUPT when pages of the file do not fit together. SQLite itself would
    find that only when it reads them."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
