"""What is compared of the history's records, beside them in narrow rows: SQLite finds the jobs that are near, and only
their records are read."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from elastichost.history.features import ROUNDING, JobFeatures, JobMetric, JobRecord

__all__ = ["Candidate", "catch_up", "closest", "counts", "create", "forget", "is_there", "near", "put"]

WORDS = ("family", "shape", "mode", "access", "name", "user")
SIZES = (  # kept as logarithms to the base 2; not known: NULL
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
CREATE = f"""
CREATE TABLE features (
    number INTEGER PRIMARY KEY,  -- of the record
    ended_utc TEXT,
    ended_well INTEGER,  -- NULL: the record cannot be read
    is_measured INTEGER,
    {", ".join(f"{name} TEXT" for name in WORDS)},
    {", ".join(f"{name} REAL" for name in SIZES)}
)
"""
COLUMNS = 4 + len(WORDS) + len(SIZES)
PUT = f"INSERT OR REPLACE INTO features VALUES ({', '.join('?' * COLUMNS)})"
SPARE = 20  # candidates beyond those asked for that are looked up at once


class Candidate(msgspec.Struct, frozen=True):
    """A record that may be one of the nearest. rank: of its distance and its age; equal: neither comes first."""

    number: int
    rank: tuple[int, str]
    is_measured: bool


def is_there(connection: sqlite3.Connection) -> bool:
    """Files of before there was an index have none."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'features'").fetchone() is not None


def create(connection: sqlite3.Connection) -> None:
    connection.execute(CREATE)


def put(connection: sqlite3.Connection, number: int, record: JobRecord | None) -> None:
    """None: it cannot be read."""
    if record is None:
        connection.execute(PUT, (number, *[None] * (COLUMNS - 1)))
        return
    features = record.features
    words = [getattr(features, name) for name in WORDS]
    sizes = [_log(getattr(features, name)) for name in SIZES]
    connection.execute(PUT, (number, record.ended_utc, int(record.ended_well), int(record.is_measured), *words, *sizes))


def forget(connection: sqlite3.Connection, until: int) -> None:
    """Those of records up to this number."""
    connection.execute("DELETE FROM features WHERE number <= ?", (until,))


def catch_up(connection: sqlite3.Connection) -> list[int]:
    """Numbers of records that are not in the index: an older version wrote them."""
    last = "(SELECT coalesce(max(number), 0) FROM features)"
    return [number for (number,) in connection.execute(f"SELECT number FROM records WHERE number > {last}")]


def near(connection: sqlite3.Connection, features: JobFeatures, metric: JobMetric, k: int) -> Iterator[Candidate]:
    """Those within `metric.near`: by bands of distance, and in them the newest first. Quick if not many more than k are
    asked for."""

    def band(squared: float, ended_well: int) -> int:
        return metric.band_of(math.sqrt(squared) + (0.0 if ended_well else metric.failed))

    connection.create_function("band", 2, band, deterministic=True)
    squared, values = _squared(features, metric)
    reach = metric.near + ROUNDING
    well, badly = reach**2, math.copysign((reach - metric.failed) ** 2, reach - metric.failed)
    # LIMIT -1: else SQLite would compute the distance once more for each place where it is named
    query = (
        "SELECT number, band(squared, ended_well) AS band, ended_utc, is_measured FROM "
        f"(SELECT number, {squared} AS squared, ended_well, ended_utc, is_measured FROM features LIMIT -1) "
        "WHERE squared <= CASE ended_well WHEN 1 THEN ? WHEN 0 THEN ? ELSE -1 END "
        "ORDER BY band, ended_utc DESC, number DESC LIMIT ? OFFSET ?"
    )
    for limit, offset in ((k + SPARE, 0), (-1, k + SPARE)):
        rows = connection.execute(query, (*values, well, badly, limit, offset)).fetchall()
        for number, its_band, ended_utc, is_measured in rows:
            yield Candidate(number, (its_band, ended_utc), bool(is_measured))


def counts(connection: sqlite3.Connection) -> tuple[int, int]:
    """Records that can be read, and those that cannot."""
    known, readable = connection.execute("SELECT count(*), count(ended_well) FROM features").fetchone()
    return readable, known - readable


def closest(connection: sqlite3.Connection, features: JobFeatures, metric: JobMetric) -> tuple[float, str] | None:
    """Of all records that can be read: the least distance, however they ended, and the job's name or family."""
    squared, values = _squared(features, metric)
    row = connection.execute(
        f"SELECT {squared} AS squared, coalesce(nullif(name, ''), family) AS called FROM features "
        "WHERE ended_well IS NOT NULL ORDER BY squared, called LIMIT 1",
        values,
    ).fetchone()
    return None if row is None else (math.sqrt(row[0]), row[1])


def _squared(features: JobFeatures, metric: JobMetric) -> tuple[str, Sequence[str | float]]:
    """SQL of the squared `job_features.distance` to a row, and its arguments."""
    parts, values = ["0.0"], list[str | float]()
    for name, weight in metric.words.items():
        own = getattr(features, name)
        if name in metric.unset_words and not own:
            continue
        unset = f" AND {name} <> ''" if name in metric.unset_words else ""
        parts.append(f"{weight**2!r} * ({name} <> ?{unset})")
        values.append(own)
    for name, weight in metric.sizes.items():
        log, otherwise = _log(getattr(features, name)), metric.unlike(name) ** 2
        if log is None:
            parts.append(f"{otherwise!r} * ({name} IS NOT NULL)")
        else:
            parts.append(f"coalesce({weight**2!r} * ({name} - ?) * ({name} - ?), {otherwise!r})")
            values += [log, log]
    return " + ".join(parts), values


def _log(size: float) -> float | None:
    return math.log2(size) if size > 0 else None
