"""Whole runs with an arena on a small file system, like /dev/shm of a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elastichost.runs.events import MemoryFull, Warned
from elastichost.runs.events.text import text_of
from tests.system.beds import small_tmpfs
from tests.system.test_run import JOB, ROOT, Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

# About 30,000 ids of each table need rows: 11 MB with their index.
MANY_IDS = JOB.replace("table_rows = 500", "table_rows = 30000").replace("workers = 2", "workers = 1\nservers = 1")
LOOKUPS = 4 * 100_000  # of 4 tables


@pytest.fixture
def arenas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 7 MB."""
    with small_tmpfs(folder / "shm", "7m") as root:
        monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(root))
        yield root


@pytest.mark.thorough
def test_ids_without_a_row_for_want_of_room_are_counted_and_the_run_is_not_done(folder: Path, arenas: Path) -> None:
    run = Supervised(folder, template=MANY_IDS, rows=100_000)
    code, errors = run.finish()
    assert code == 1, errors
    result = run.result()
    assert result["status"] == "incomplete"
    assert result["samples"]["trained"] == 100_000
    assert result["lookups"]["total"] == LOOKUPS
    assert 0.01 * LOOKUPS < result["lookups"]["without_row"] < LOOKUPS
    assert "had no row because memory was full" in result["message"]
    warnings = [event.message for event in run.events(Warned)]
    assert any(f"{arenas} has 7.0 MiB free" in text and "--shm-size" in text for text in warnings), (
        "warned before the start"
    )
    full = run.events(MemoryFull)[0]
    assert full.is_files
    assert "the file system of the arena is full" in text_of(full)
    assert "new ids get no row" in text_of(full)
    assert list(arenas.iterdir()) == []


def test_a_file_system_too_small_to_begin_with_is_an_error_with_its_repair(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_tmpfs(folder / "shm", "3m") as root:
        monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(root))
        run = Supervised(folder, template=MANY_IDS, rows=100_000)
        code, errors = run.finish()
        assert code == 3, errors
        assert "ArenaFullError" in errors and "the job needs at least 5.2 MiB" in errors
        assert "--shm-size" in errors and "mount -o remount,size=" in errors and "ELASTICHOST_ARENA_DIR" in errors
        assert not run.run_dir.exists(), "a job that never ran must leave no run directory"


# 36 MB of rows, with their optimizer state, for two file systems of 30 MB
SPREAD = JOB.replace('rows = "dynamic"', "rows = 250000").replace("workers = 2", "workers = 2\nservers = {servers}")
HOSTS = """
[[hosts]]
transport = "local"
name = "second"
arena_directory = "{directory}"
"""


@pytest.fixture
def two_arenas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two hosts; each has a file system for its rows. The hosts file names the second."""
    with small_tmpfs(folder / "here", "30m") as here, small_tmpfs(folder / "there", "30m") as there:
        monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(here))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        (folder / "hosts.toml").write_text(HOSTS.format(directory=there))
        yield there


@pytest.mark.thorough
def test_rows_that_fit_on_no_host_alone_are_trained_on_two(folder: Path, two_arenas: Path) -> None:
    run = Supervised(folder, template=SPREAD, rows=100_000, servers=2)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 100_000 and run.result()["test"]["auc"] > 0.6
    assert run.lost() == []
    assert list(two_arenas.iterdir()) == []


def test_rows_that_fit_on_no_host_alone_need_as_many_ps_as_hosts(folder: Path, two_arenas: Path) -> None:
    run = Supervised(folder, template=SPREAD, rows=100_000, servers=1)
    code, errors = run.finish()
    assert code == 3, errors
    assert "the fixed tables need 34.3 MiB in" in errors and "but only 30.0 MiB are free" in errors
    assert "write resources.servers = [2, 8]: with so many parameter servers 2 hosts share the rows" in errors
