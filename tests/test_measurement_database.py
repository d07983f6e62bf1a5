"""Databases of measurements: opened again, and begun anew when the file is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from elastichost.dispatcher.timeline import Timeline
from elastichost.host.process_meter import MetricsStore
from elastichost.measurement_database import open_database

SCHEMA = "CREATE TABLE IF NOT EXISTS seen (number INTEGER, text TEXT);"


def filled(path: Path, rows: int) -> None:
    connection, _ = open_database(path, SCHEMA)
    with connection:
        connection.executemany("INSERT INTO seen VALUES (?, ?)", [(number, "text" * 20) for number in range(rows)])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def rows_of(path: Path) -> int:
    connection, aside = open_database(path, SCHEMA)
    with connection:
        (found,) = connection.execute("SELECT count(*) FROM seen").fetchone()
    connection.close()
    assert aside is None
    return int(found)


def test_what_an_earlier_process_wrote_stays(tmp_path: Path) -> None:
    filled(tmp_path / "a.db", 10)
    filled(tmp_path / "a.db", 5)
    assert rows_of(tmp_path / "a.db") == 15


def test_rows_that_only_the_log_beside_the_file_has_stay(tmp_path: Path) -> None:
    connection, _ = open_database(tmp_path / "a.db", SCHEMA)
    with connection:
        connection.execute("INSERT INTO seen VALUES (1, '')")
    assert (tmp_path / "a.db-wal").stat().st_size > 0, "as a killed process leaves it"
    assert rows_of(tmp_path / "a.db") == 1
    connection.close()


@pytest.mark.parametrize("damage", ["no database", "a page within"])
def test_a_damaged_file_is_kept_beside_a_new_one(tmp_path: Path, damage: str) -> None:
    """As after a loss of power: the pages of the file were not written in order."""
    path = tmp_path / "a.db"
    filled(path, 1000)
    content = bytearray(path.read_bytes())
    start = 0 if damage == "no database" else 4096
    content[start : start + 4096] = b"\xa5" * 4096
    for number in (1, 2):
        path.write_bytes(content)
        Path(f"{path}-wal").write_bytes(b"the log of the damaged file")
        connection, aside = open_database(path, SCHEMA)
        assert aside == tmp_path / f"a.db.damaged-{number}"
        assert aside.read_bytes() == content
        connection.execute("INSERT INTO seen VALUES (1, '')")
        connection.close()


def test_other_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        open_database(tmp_path / "missing" / "a.db", SCHEMA)
    filled(tmp_path / "a.db", 1)
    with pytest.raises(sqlite3.OperationalError, match="syntax error"):
        open_database(tmp_path / "a.db", "CREATE NONSENSE")
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize("writer", [MetricsStore, Timeline])
def test_measurements_go_on_after_a_damaged_file(tmp_path: Path, writer: type[MetricsStore | Timeline]) -> None:
    (tmp_path / "a.db").write_bytes(b"no database" * 1000)
    opened = writer(tmp_path / "a.db")
    assert opened.set_aside == tmp_path / "a.db.damaged-1"
    opened.close()
