"""The records of runs, in one SQLite file that all runs of a user share.

Runs may read and write it at the same time: a write is one short transaction that waits for other writers. The number
of records is limited. A run can do without the history: the caller turns a HistoryError into a warning. The features
for the comparison are in a table of their own with narrow rows, which is read completely; of the records themselves
only the near ones are read.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import HistoryError
from elastichost.history.features import ROUNDING, JobFeatures, JobMetric, JobRecord

__all__ = ["KEPT", "MAX_RECORD_BYTES", "SCHEMA", "WAIT_S", "History", "Neighbours", "history_path", "state_directory"]

SCHEMA = 2  # PRAGMA user_version
APPLICATION = 0x656C6874  # PRAGMA application_id: "elht"
KEPT = 10_000  # records; older ones are deleted
MAX_RECORD_BYTES = 2**20
WAIT_S = 5.0  # longest wait for other runs that write
VARIABLE = "ELASTICHOST_HISTORY"
ELSEWHERE = f'move the file away, or set {VARIABLE} to another file, or to "off"'

CREATE = """
CREATE TABLE records (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- newer is greater
    run TEXT NOT NULL,
    family TEXT NOT NULL,
    written_utc TEXT NOT NULL,
    record BLOB NOT NULL  -- JobRecord as JSON
)
"""
CREATE_RUNS = "CREATE INDEX runs ON records (run)"
WORDS = ("family", "shape", "mode", "access", "name", "user")
SIZES = (  # stored as logarithms to the base 2; NULL where not known
    "tables",
    "dynamic_tables",
    "rows",
    "largest_rows",
    "mean_dim",
    "largest_dim",
    "ids_per_sample",
    "dense_bytes",
    "batch_size",
    "samples",
    "host_cores",
    "gpus",
)
CREATE_FEATURES = f"""
CREATE TABLE features (
    number INTEGER PRIMARY KEY,  -- of the record
    written_utc TEXT NOT NULL,
    ended_well INTEGER NOT NULL,
    is_measured INTEGER NOT NULL,
    {", ".join(f"{name} TEXT NOT NULL" for name in WORDS)},
    {", ".join(f"{name} REAL" for name in SIZES)}
)
"""
COLUMNS = ("number", "written_utc", "ended_well", "is_measured", *WORDS, *SIZES)
Columns = dict[str, tuple[Any, ...]]  # the rows of `features` by column
Distances = npt.NDArray[np.float64]


def state_directory(environ: Mapping[str, str]) -> Path:
    """The directory of files that a user's runs share: `elastichost` below XDG_STATE_HOME or ~/.local/state. Raises
    RuntimeError for a user without a home directory."""
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "elastichost"


def history_path(environ: Mapping[str, str]) -> Path | None:
    """$ELASTICHOST_HISTORY, or `history.sqlite` in `state_directory`. None when the variable is "" or "off": there is
    no history then. Raises HistoryError for a user without a home directory."""
    own = environ.get(VARIABLE)
    try:
        if own is not None:
            return Path(own).expanduser() if own and own != "off" else None
        return state_directory(environ) / "history.sqlite"
    except RuntimeError as error:
        raise HistoryError(
            f"the path of the history is not known: {error}", hint=f"set {VARIABLE} to a file, or to off"
        ) from error


class Neighbours(msgspec.Struct, frozen=True):
    """The records near a job. records: the nearest first, () when none is near. known: the number of all records.
    closest: distance and name of the nearest of all records, given only when none is near."""

    records: tuple[JobRecord, ...]
    known: int
    closest: tuple[float, str] | None = None


class History:
    """The open history file; it is created when missing. `kept`: the largest number of records; the oldest are deleted.
    `unreadable`: the number of records that the last `records` or `near` could not read. The file must be closed before
    the process forks, because SQLite connections may not be used across a fork.

    A file of an earlier schema is begun anew, because its records cannot be read. All methods raise HistoryError when
    the file is broken, has a newer schema, belongs to another program, or cannot be opened.
    """

    def __init__(self, path: Path, *, kept: int = KEPT, wait_s: float = WAIT_S) -> None:
        self.path, self.unreadable = path, 0
        self._kept = kept
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryError(f"{path.parent}: cannot be created: {error.strerror}", hint=ELSEWHERE) from error
        with self._explained():
            # autocommit: transactions begin and end only where the code below says so
            self._connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        try:
            with self._explained():
                self._prepare(wait_s)
        except BaseException:
            self._connection.close()
            raise

    def add(self, record: JobRecord) -> None:
        """Adds a record, in place of an earlier one of the same run. It is durable when the method returns, except at a
        loss of power. Raises HistoryError, also for a record of more than MAX_RECORD_BYTES."""
        data = msgspec.json.encode(record)
        if len(data) > MAX_RECORD_BYTES:
            raise HistoryError(
                f"the record of {record.features.name or record.features.family} has {len(data):,} bytes",
                hint=f"at most {MAX_RECORD_BYTES:,} bytes are allowed; leave observations out",
            )
        with self._explained(), self._writing():
            self._forget(record.run)
            number = self._connection.execute(
                "INSERT INTO records (run, family, written_utc, record) VALUES (?, ?, ?, ?)",
                (record.run, record.features.family, record.written_utc, data),
            ).lastrowid
            assert number is not None
            features = _features_row(number, record)
            self._connection.execute(f"INSERT INTO features VALUES ({', '.join('?' * len(features))})", features)
            beyond = "SELECT number FROM records ORDER BY number DESC LIMIT 1 OFFSET ?"
            for (last,) in self._connection.execute(beyond, (self._kept,)).fetchall():
                for table in ("records", "features"):
                    self._connection.execute(f"DELETE FROM {table} WHERE number <= ?", (last,))

    def forget(self, run: str) -> None:
        """Removes the record of a run, if there is one."""
        with self._explained(), self._writing():
            self._forget(run)

    def records(self, *, family: str | None = None, limit: int = KEPT) -> tuple[JobRecord, ...]:
        """The records, newest first. With `family`: only those of this model family."""
        query = "SELECT record FROM records WHERE ? IS NULL OR family = ? ORDER BY number DESC LIMIT ?"
        with self._explained():
            rows = self._connection.execute(query, (family, family, limit)).fetchall()
        found = [_decoded(data) for (data,) in rows]
        self.unreadable = sum(record is None for record in found)
        return tuple(record for record in found if record is not None)

    def near(self, features: JobFeatures, metric: JobMetric, k: int = 5) -> Neighbours:
        """The k nearest records with a measured speed, and all others with the rank of the last of these. So
        `warm_start.nearest` finds the same among them as among all records. Of the records without a measured speed,
        which are used for memory only: the first k that are not farther. It reads no other records."""
        with self._explained():
            rows = self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM features").fetchall()
            self.unreadable = 0
            if not rows:
                return Neighbours((), 0)
            columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
            away = _distances(columns, features, metric)
            found, last, counts = list[JobRecord](), None, {True: 0, False: 0}
            for one in _candidates(columns, away, metric):
                if counts[True] >= k and one.rank != last:
                    break
                if not one.is_measured and counts[False] >= k:
                    continue
                record = self._record(one.number)
                if record is not None:
                    found.append(record)
                    counts[one.is_measured] += 1
                    last = one.rank if one.is_measured else last
            return Neighbours(tuple(found), len(rows), None if found else _closest(columns, away))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- opening ------------------------------------------------------------------------------------------------------

    def _prepare(self, wait_s: float) -> None:
        if self._number("user_version") == 0:
            with self._writing():  # checked again, because another run may have created the tables meanwhile
                if self._number("user_version") == 0:
                    self._require_empty()
                    self._create()
        if self._number("application_id") != APPLICATION:
            raise HistoryError(f"{self.path}: a database of another program", hint=ELSEWHERE)
        if self._number("user_version") < SCHEMA:
            with self._writing():
                if self._number("user_version") < SCHEMA:
                    for table in ("records", "features"):
                        self._connection.execute(f"DROP TABLE {table}")
                    self._create()
        if self._number("user_version") > SCHEMA:
            raise HistoryError(
                f"{self.path}: written by a newer elastichost (schema {self._number('user_version')}, "
                f"this version reads schema {SCHEMA})",
                hint=f'update elastichost, or set {VARIABLE} to another file, or to "off"',
            )
        self._write_ahead(wait_s)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _require_empty(self) -> None:
        if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise HistoryError(f"{self.path}: a database of another program", hint=ELSEWHERE)

    def _create(self) -> None:
        self._connection.execute(CREATE)
        self._connection.execute(CREATE_RUNS)
        self._connection.execute(CREATE_FEATURES)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _forget(self, run: str) -> None:
        if run:
            query = "DELETE FROM features WHERE number IN (SELECT number FROM records WHERE run = ?)"
            self._connection.execute(query, (run,))
            self._connection.execute("DELETE FROM records WHERE run = ?", (run,))

    def _write_ahead(self, wait_s: float) -> None:
        """Turns on write-ahead logging, with which readers and one writer work at the same time. SQLite itself does not
        wait for other processes here. On a file system without support for it, the journal mode stays as it was, which
        works too."""
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                    raise
            time.sleep(0.01)

    def _record(self, number: int) -> JobRecord | None:
        """The record; None when it cannot be read, or was deleted meanwhile."""
        row = self._connection.execute("SELECT record FROM records WHERE number = ?", (number,)).fetchone()
        record = None if row is None else _decoded(row[0])
        self.unreadable += row is not None and record is None
        return record

    def _number(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction. IMMEDIATE: it waits for other writers at its beginning, and does not fail on them later."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls some failed transactions back
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_BUSY:
                raise HistoryError(
                    f"{self.path}: other runs are writing to the history", hint="try again later"
                ) from error
            raise HistoryError(f"{self.path}: cannot be used: {error}", hint=ELSEWHERE) from error


DECODER = msgspec.json.Decoder(JobRecord)


def _decoded(data: bytes) -> JobRecord | None:
    """The record; None when it was written by another version and does not fit, or is damaged."""
    try:
        return DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return None


# --- the search for near records -----------------------------------------------------------------------------------


class Candidate(msgspec.Struct, frozen=True):
    """A record that may be one of the nearest. rank: (band of distance, time of its end); equal ranks are a tie."""

    number: int
    rank: tuple[int, str]
    is_measured: bool


def _features_row(number: int, record: JobRecord) -> tuple[object, ...]:
    features = record.features
    words = (getattr(features, name) for name in WORDS)
    sizes = (_log(getattr(features, name)) for name in SIZES)
    return (number, record.written_utc, int(record.ended_well), int(record.is_measured), *words, *sizes)


def _log(size: float) -> float | None:
    return math.log2(size) if size > 0 else None


def _distances(columns: Columns, features: JobFeatures, metric: JobMetric) -> Distances:
    """`JobMetric.distance` of the job to every row, float64 [rows]."""
    squared = np.zeros(len(columns["number"]))
    for name, weight in metric.words.items():
        own, others = getattr(features, name), np.array(columns[name], dtype=object)
        differs = others != own
        if name in metric.unset_words:
            differs &= (others != "") & (own != "")
        squared += weight**2 * differs
    for name, weight in metric.sizes.items():
        log, logs = _log(getattr(features, name)), np.array(columns[name], dtype=float)  # NULL: nan
        unlike = metric.unlike(name) ** 2
        if log is None:
            squared += unlike * ~np.isnan(logs)
        else:
            squared += np.where(np.isnan(logs), unlike, weight**2 * (logs - log) ** 2)
    return np.sqrt(squared)


def _candidates(columns: Columns, away: Distances, metric: JobMetric) -> Iterator[Candidate]:
    """The records within `metric.near`: by bands of distance, and within a band the newest first."""
    judged = away + metric.failed * ~np.array(columns["ended_well"], dtype=bool)
    newest_first = np.lexsort((columns["number"], columns["written_utc"]))[::-1]
    near = newest_first[judged[newest_first] <= metric.near + ROUNDING]
    bands = np.floor(judged[near] / metric.band + ROUNDING)
    for which in np.argsort(bands, kind="stable"):
        at = near[which]
        rank = (int(bands[which]), columns["written_utc"][at])
        yield Candidate(columns["number"][at], rank, bool(columns["is_measured"][at]))


def _closest(columns: Columns, away: Distances) -> tuple[float, str]:
    """The least distance of all records, also of failed runs, with the job's name or family."""
    called = [name or family for name, family in zip(columns["name"], columns["family"], strict=True)]
    return min(zip(away.tolist(), called, strict=True))
