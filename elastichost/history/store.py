"""What finished jobs taught, kept in one SQLite file that all runs of a user share.

Runs may read and write it at once: a write is one short transaction, and waits for others. The file is bounded. It is a
convenience: whoever uses it turns a HistoryError into a warning and goes on without.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from elastichost.errors import HistoryError
from elastichost.history import index as history_index
from elastichost.history.features import JobFeatures, JobMetric, JobRecord

__all__ = ["KEPT", "MAX_RECORD_BYTES", "SCHEMA", "WAIT_S", "History", "Neighbours", "history_path", "state_directory"]

SCHEMA = 1  # PRAGMA user_version
APPLICATION = 0x656C6874  # PRAGMA application_id: "elht"
KEPT = 10_000
MAX_RECORD_BYTES = 2**20
WAIT_S = 5.0  # for other runs that write
VARIABLE = "ELASTICHOST_HISTORY"
ELSEWHERE = f"move the file away, or set {VARIABLE} to another file, or to off"

CREATE = """
CREATE TABLE records (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- newer is greater
    family TEXT NOT NULL,
    ended_utc TEXT NOT NULL,
    record BLOB NOT NULL  -- JobRecord as JSON
)
"""


def state_directory(environ: Mapping[str, str]) -> Path:
    """What is kept of a user between runs: `elastichost` below XDG_STATE_HOME, or below ~/.local/state. Raises
    RuntimeError for a user without a home."""
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "elastichost"


def history_path(environ: Mapping[str, str]) -> Path | None:
    """ELASTICHOST_HISTORY, or `elastichost/history.sqlite` below the user's state directory. None: set to nothing or to
    "off", so there is no history. Raises HistoryError for a user without a home."""
    own = environ.get(VARIABLE)
    try:
        if own is not None:
            return Path(own).expanduser() if own and own != "off" else None
        return state_directory(environ) / "history.sqlite"
    except RuntimeError as error:
        raise HistoryError(f"where the history lies is not known: {error}", hint=f"set {VARIABLE}") from error


class Neighbours(msgspec.Struct, frozen=True):
    """records: the nearest first; none where nothing is near. known: of how many they are; closest: distance and name
    of the nearest of all, looked up where nothing is near."""

    records: tuple[JobRecord, ...]
    known: int
    closest: tuple[float, str] | None = None


class History:
    """The open file; made when it is not there. `kept`: so many records at most, the newest. `unreadable`: records that
    the last `records` or `near` passed over. To be closed before the process forks, as SQLite wants it.

    Raises HistoryError, from here on, when the file is broken, of a newer schema, of another program, or out of reach.
    """

    def __init__(self, path: Path, *, kept: int = KEPT, wait_s: float = WAIT_S) -> None:
        self.path, self.unreadable = path, 0
        self._kept = kept
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryError(f"{path.parent}: cannot be made: {error.strerror}", hint=ELSEWHERE) from error
        with self._explained():
            # autocommit: transactions begin and end where it is written below
            self._connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
        try:
            with self._explained():
                self._prepare(wait_s)
        except BaseException:
            self._connection.close()
            raise

    def add(self, record: JobRecord) -> None:
        """Durable when it returns, but for a loss of power. Raises HistoryError, also for a record of more than
        MAX_RECORD_BYTES."""
        data = msgspec.json.encode(record)
        if len(data) > MAX_RECORD_BYTES:
            raise HistoryError(
                f"the record of {record.features.name or record.features.family} has {len(data):,} bytes",
                hint=f"at most {MAX_RECORD_BYTES:,} are kept; leave observations out",
            )
        with self._explained(), self._writing():
            self._catch_up()
            number = self._connection.execute(
                "INSERT INTO records (family, ended_utc, record) VALUES (?, ?, ?)",
                (record.features.family, record.ended_utc, data),
            ).lastrowid
            assert number is not None
            history_index.put(self._connection, number, record)
            self._connection.execute("DELETE FROM records WHERE number <= ?", (number - self._kept,))
            history_index.forget(self._connection, number - self._kept)

    def records(self, *, family: str | None = None, limit: int = KEPT) -> tuple[JobRecord, ...]:
        """The newest first; of one model family only, if it is named."""
        query = "SELECT record FROM records WHERE ? IS NULL OR family = ? ORDER BY number DESC LIMIT ?"
        with self._explained():
            rows = self._connection.execute(query, (family, family, limit)).fetchall()
        found = [_decoded(data) for (data,) in rows]
        self.unreadable = sum(record is None for record in found)
        return tuple(record for record in found if record is not None)

    def near(self, features: JobFeatures, metric: JobMetric, k: int = 5) -> Neighbours:
        """The k nearest of all records of which a speed was measured, and those that are as near and as new as the last
        of them: what `warm_start.nearest` finds among all of them, it finds among these. Of the others, which teach of
        memory only, the first k that are no farther. Reads no other record."""
        with self._explained():
            if history_index.catch_up(self._connection):
                with self._writing():
                    self._catch_up()
            known, self.unreadable = history_index.counts(self._connection)
            found, last, counts = list[JobRecord](), None, {True: 0, False: 0}
            for one in history_index.near(self._connection, features, metric, k):
                if counts[True] >= k and one.rank != last:
                    break
                if not one.is_measured and counts[False] >= k:
                    continue
                record = self._record(one.number)
                if record is not None:
                    found.append(record)
                    counts[one.is_measured] += 1
                    last = one.rank if one.is_measured else last
            closest = None if found else history_index.closest(self._connection, features, metric)
        return Neighbours(tuple(found), known, closest)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the index ----------------------------------------------------------------------------------------------------

    def _record(self, number: int) -> JobRecord | None:
        row = self._connection.execute("SELECT record FROM records WHERE number = ?", (number,)).fetchone()
        return None if row is None else _decoded(row[0])

    def _catch_up(self) -> None:
        for number in history_index.catch_up(self._connection):
            history_index.put(self._connection, number, self._record(number))

    # --- opening ------------------------------------------------------------------------------------------------------

    def _prepare(self, wait_s: float) -> None:
        if self._number("user_version") == 0:
            with self._writing():  # another run may have been faster
                if self._number("user_version") == 0:
                    self._create()
        if self._number("application_id") != APPLICATION:
            raise HistoryError(f"{self.path}: a database of another program", hint=ELSEWHERE)
        if self._number("user_version") > SCHEMA:
            raise HistoryError(
                f"{self.path}: written by a newer elastichost (schema {self._number('user_version')}, "
                f"this one knows {SCHEMA})",
                hint=f"update elastichost, or set {VARIABLE} to another file, or to off",
            )
        if not history_index.is_there(self._connection):  # older versions made none, and do not mind it
            with self._writing():
                if not history_index.is_there(self._connection):
                    history_index.create(self._connection)
        self._write_ahead(wait_s)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _create(self) -> None:
        if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise HistoryError(f"{self.path}: a database of another program", hint=ELSEWHERE)
        self._connection.execute(CREATE)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def _write_ahead(self, wait_s: float) -> None:
        """Readers and a writer at once. SQLite does not wait for others here; where the file system cannot do it, it
        stays as it is, and works."""
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                    raise
            time.sleep(0.01)

    def _number(self, pragma: str) -> int:
        return int(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, all or nothing. IMMEDIATE: waits for other writers now, and cannot fail for them later."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite ends some of those that failed by itself
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_BUSY:
                raise HistoryError(f"{self.path}: other runs are writing to it", hint="try again later") from error
            raise HistoryError(f"{self.path}: cannot be used: {error}", hint=ELSEWHERE) from error


DECODER = msgspec.json.Decoder(JobRecord)


def _decoded(data: bytes) -> JobRecord | None:
    """None: it is of another version."""
    try:
        return DECODER.decode(data)
    except (msgspec.DecodeError, TypeError):
        return None
