"""timeline.db: what every job used in each second, and its charge. One process writes; others may read meanwhile. A
dispatcher that runs for ever keeps the newest rows only."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

import msgspec

from elastichost.dispatcher.facts import HostStatus, JobStatus
from elastichost.measurement_database import open_database

__all__ = ["Moment", "Timeline", "read_timeline"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    elapsed_s REAL, job TEXT, state TEXT, cpu_cores REAL, memory_bytes INTEGER, charged_bytes INTEGER,
    samples_per_s REAL, predicted_speed REAL, workers INTEGER);
"""
_FORGET = "DELETE FROM job WHERE rowid <= (SELECT max(rowid) FROM job) - ?"
FORGET_EVERY = 10_000  # rows: deleting as many takes about 10 ms
_SHOWN = frozenset({"starting", "running", "paused", "stopping"})


class Moment(msgspec.Struct, frozen=True):
    """One job at one second. elapsed_s: since the dispatcher began. The other fields are those of `JobStatus`."""

    elapsed_s: float
    job: str
    state: str
    cpu_cores: float
    memory_bytes: int
    charged_bytes: int
    samples_per_s: float
    predicted_speed: float
    workers: int


class Timeline:
    """Writes timeline.db. most_rows: how many of the newest rows are kept, a few more at times; None: all.
    set_aside: see `MeasurementDatabase`."""

    def __init__(self, path: Path, most_rows: int | None = None) -> None:
        self._most_rows, self._added = most_rows, FORGET_EVERY  # rows of earlier dispatchers may be too many
        self._connection, self.set_aside = open_database(path, _SCHEMA)

    def add(self, status: HostStatus) -> None:
        """Adds a row for each job that has processes. Raises sqlite3.OperationalError where the disk is full."""
        rows = [_row(status.elapsed_s, job) for job in status.jobs if job.state in _SHOWN]
        with self._connection:
            self._connection.executemany("INSERT INTO job VALUES (?,?,?,?,?,?,?,?,?)", rows)
        self._added += len(rows)
        if self._most_rows is not None and self._added >= FORGET_EVERY:
            self._added = 0
            with self._connection:  # new rows take the place of the deleted ones in the file
                self._connection.execute(_FORGET, (self._most_rows,))

    def close(self) -> None:
        self._connection.close()


def _row(elapsed_s: float, job: JobStatus) -> tuple[float | int | str, ...]:
    sizes = (job.cpu_cores, job.memory_bytes, job.charged_bytes)
    return (elapsed_s, job.job, job.state, *sizes, job.samples_per_s, job.predicted_speed, job.workers)


def read_timeline(path: Path) -> tuple[Moment, ...]:
    """Returns all rows by time and job; empty when there is no file."""
    if not path.exists():
        return ()
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT * FROM job ORDER BY elapsed_s, job").fetchall()
    finally:
        connection.close()
    return tuple(Moment(*row) for row in rows)
