"""A database is read without a trace."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elastichost.runs.metrics_file import connect_to_read


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A closed database that was written with a log, as that of a run."""
    path = tmp_path / "metrics.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (value)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
    return path


def test_reading_leaves_nothing_beside_the_file(database: Path) -> None:
    before = sorted(os.listdir(database.parent))
    with closing(connect_to_read(database)) as connection:
        assert connection.execute("SELECT value FROM t").fetchall() == [(1,)]
    assert sorted(os.listdir(database.parent)) == before


def test_what_is_only_in_the_log_is_read(database: Path) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        writer.commit()
        with closing(connect_to_read(database)) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
