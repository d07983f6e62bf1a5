"""Records survive: other writers, a kill, a full file. What is no history is left as it is."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from elastichost.errors import HistoryError
from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.history.store import MAX_RECORD_BYTES, SCHEMA, History, history_path

WRITER = """
import sys
from pathlib import Path
from elastichost.history.store import History
from elastichost.history.features import JobFeatures, JobRecord, PlanSize
print("ready", flush=True)
sys.stdin.readline()
name, count = sys.argv[2], int(sys.argv[3])
with History(Path(sys.argv[1]), wait_s=60.0) as history:
    for number in range(count):
        plan = PlanSize(number + 1, 1)
        history.add(JobRecord(JobFeatures(name), f"2026-01-01T00:00:{number:06}Z", plan, 1.0, plan))
        print(number, flush=True)
"""


def record(number: int = 1, family: str = "retail:build") -> JobRecord:
    plan = PlanSize(number, 2, 3, 4)
    return JobRecord(
        features=JobFeatures(family, name=f"job-{number}", tables=26, rows=10**9, mean_dim=16.5, mode="sync"),
        ended_utc=f"2026-02-03T04:05:{number:02}Z",
        best=plan,
        samples_per_s=1234.5,
        final=PlanSize(1, 1),
        ended_well=False,
        model="elastichost",
        parameters=Estimates({"a0": -3.5}, {"a0": 0.25}),
        memory=Estimates({"beta": -0.5}, {"beta": 0.1}),
        observations='[{"samples_per_s":3.0}]',
    )


def writers(path: Path, names: list[str], count: int) -> list[subprocess.Popen[str]]:
    """Processes that wait for a line each, and then write at once."""
    made = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in made:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
    for process in made:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return made


def test_what_is_added_comes_back_newest_first_also_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.sqlite"
    with History(path) as history:
        assert history.records() == ()
        for number in (1, 2, 3):
            history.add(record(number, "a:build" if number == 2 else "b:build"))
    with History(path) as history:
        assert history.records() == (record(3, "b:build"), record(2, "a:build"), record(1, "b:build"))
        assert history.records(family="b:build") == (record(3, "b:build"), record(1, "b:build"))
        assert history.records(limit=1) == (record(3, "b:build"),)
    assert os.stat(path.parent).st_mode & 0o077 == 0, "it tells what its user trains"


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    with History(tmp_path / "h", kept=5) as history:
        for number in range(1, 13):
            history.add(record(number))
        assert [one.best.workers for one in history.records()] == [12, 11, 10, 9, 8]


def test_several_processes_write_at_once_and_lose_nothing(tmp_path: Path) -> None:
    path, names = tmp_path / "h", ["a", "b", "c"]
    processes = writers(path, names, 60)
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        assert output.split() == [str(number) for number in range(60)]
    with History(path) as history:
        found = history.records()
    assert len(found) == 180
    for name in names:
        own = [one.best.workers for one in found if one.features.family == name]
        assert own == list(range(60, 0, -1)), "each in its order"


def test_a_killed_writer_leaves_what_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "h"
    (process,) = writers(path, ["a"], 1_000_000)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().rpartition("\n")[0].split()  # the last line may be cut short
    process.wait()
    last = int(rest[-1]) if rest else 20
    with History(path) as history:
        written = [one.best.workers for one in history.records()]
        # the one under way may be in, with no word of it
        assert written in (list(range(last + 1, 0, -1)), list(range(last + 2, 0, -1)))
        history.add(record(7))
        assert history.records(limit=1) == (record(7),)


def test_a_writer_that_waits_too_long_says_so(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path, wait_s=0.0) as history:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="other runs are writing"):
            history.add(record())
        assert history.records() == (), "reading goes on"
        other.execute("ROLLBACK")
        history.add(record())
        assert history.records() == (record(),)
        other.close()


def test_a_broken_file_is_told_of_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_bytes(b"no database at all, " * 100)
    with pytest.raises(HistoryError, match=r"(?s)cannot be used.*ELASTICHOST_HISTORY"):
        History(path)
    assert path.read_bytes().startswith(b"no database at all")


def test_a_file_cut_short_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        for number in range(200):
            history.add(record(number))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(HistoryError, match="cannot be used"), History(path) as history:
        history.records()


def test_a_newer_schema_is_told_of_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        history.add(record())
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match=r"(?s)newer elastichost.*update"):
        History(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 7])
def test_another_programs_database_is_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "h"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="another program"):
        History(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["file/history.sqlite", "directory"])
def test_a_place_that_cannot_be_is_told_of(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    with pytest.raises(HistoryError, match=r"cannot be (made|used)"):
        History(tmp_path / where)


def test_one_unreadable_record_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        history.add(record(1))
        for data in (b"{", b'{"features": 3}'):
            connection = sqlite3.connect(path)
            connection.execute("INSERT INTO records (family, ended_utc, record) VALUES ('x', '', ?)", (data,))
            connection.commit()
            connection.close()
        history.add(record(2))
        assert history.records() == (record(2), record(1))
        assert history.unreadable == 2


def test_records_of_a_later_version_with_more_fields_are_read() -> None:
    data = msgspec.json.decode(msgspec.json.encode(record()))
    data["features"]["sparsity"] = 0.5
    data["weather"] = "fine"
    assert msgspec.json.decode(msgspec.json.encode(data), type=JobRecord) == record()


def test_a_record_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with History(tmp_path / "h") as history:
        large = msgspec.structs.replace(record(), observations="x" * MAX_RECORD_BYTES)
        with pytest.raises(HistoryError, match=r"(?s)job-1 has .* bytes.*leave observations out"):
            history.add(large)
        assert history.records() == ()


def test_where_it_is() -> None:
    home = Path.home() / ".local" / "state" / "elastichost" / "history.sqlite"
    assert history_path({}) == home
    assert history_path({"XDG_STATE_HOME": ""}) == home
    assert history_path({"XDG_STATE_HOME": "/s"}) == Path("/s/elastichost/history.sqlite")
    assert history_path({"XDG_STATE_HOME": "/s", "ELASTICHOST_HISTORY": "/x/y"}) == Path("/x/y")
    assert history_path({"ELASTICHOST_HISTORY": "~/y"}) == Path.home() / "y"
    assert history_path({"ELASTICHOST_HISTORY": ""}) is None
    assert history_path({"ELASTICHOST_HISTORY": "off"}) is None


@pytest.mark.parametrize("own", ["~nobody-of-that-name/history.sqlite", None])
def test_without_a_home_it_is_nowhere(monkeypatch: pytest.MonkeyPatch, own: str | None) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # of no user that this machine knows
    with pytest.raises(HistoryError, match=r"(?s)is not known.*set ELASTICHOST_HISTORY"):
        history_path({} if own is None else {"ELASTICHOST_HISTORY": own})
