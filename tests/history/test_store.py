"""Records survive other writers, a kill and a full file. Files that are not a history are not changed. The search for
near records has the same result as a search of all records, and reads only a few of them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.errors import HistoryError
from elastichost.history import store
from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.history.store import MAX_RECORD_BYTES, SCHEMA, History, history_path
from elastichost.tuner.warm_start import METRIC, NEAR, SIZES, WORDS, distance, nearest, neighbours, none_near
from tests.effort import examples

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
        written_utc=f"2026-02-03T04:05:{number:02}Z",
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
    """Processes that each wait for a line, and then write at the same time."""
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


def test_added_records_are_returned_newest_first_also_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.sqlite"
    with History(path) as history:
        assert history.records() == ()
        for number in (1, 2, 3):
            history.add(record(number, "a:build" if number == 2 else "b:build"))
    with History(path) as history:
        assert history.records() == (record(3, "b:build"), record(2, "a:build"), record(1, "b:build"))
        assert history.records(family="b:build") == (record(3, "b:build"), record(1, "b:build"))
        assert history.records(limit=1) == (record(3, "b:build"),)
    assert os.stat(path.parent).st_mode & 0o077 == 0, "other users must not see what the user trains"


def test_only_the_newest_records_are_kept(tmp_path: Path) -> None:
    with History(tmp_path / "h", kept=5) as history:
        for number in range(1, 13):
            history.add(record(number))
        assert [one.best.workers for one in history.records()] == [12, 11, 10, 9, 8]


def test_a_record_takes_the_place_of_the_earlier_one_of_its_run(tmp_path: Path) -> None:
    """Also of the number of records that are kept it is one."""
    with History(tmp_path / "h", kept=3) as history:
        history.add(record(1))
        history.add(record(2))
        for number in range(3, 30):
            history.add(msgspec.structs.replace(record(number), run="run-a"))
        assert [one.best.workers for one in history.records()] == [29, 2, 1]
        near = history.near(record(1).features, METRIC)
        assert near.known == 3 and sorted(one.best.workers for one in near.records) == [1, 2, 29]
        history.forget("run-b")
        history.forget("run-a")
        assert [one.best.workers for one in history.records()] == [2, 1]
        assert history.near(record(1).features, METRIC).known == 2
        history.forget("")
        assert len(history.records()) == 2, "records without the id of a run belong to different runs"


def test_a_file_of_an_earlier_schema_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        history.add(record())
    connection = sqlite3.connect(path)
    connection.executescript("DROP INDEX runs; ALTER TABLE records DROP COLUMN run; PRAGMA user_version = 1")
    connection.close()
    for count in (1, 2):
        with History(path) as history:
            history.add(record(count))
            assert len(history.records()) == count


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
        assert own == list(range(60, 0, -1)), "the records of each process must be in order"


def test_a_killed_writer_leaves_what_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "h"
    (process,) = writers(path, ["a"], 1_000_000)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().rpartition("\n")[0].split()  # the last line may be incomplete
    process.wait()
    last = int(rest[-1]) if rest else 20
    with History(path) as history:
        written = [one.best.workers for one in history.records()]
        # the record being written at the kill may be in the file, without a line on stdout
        assert written in (list(range(last + 1, 0, -1)), list(range(last + 2, 0, -1)))
        history.add(record(7))
        assert history.records(limit=1) == (record(7),)


def test_a_writer_that_waits_too_long_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path, wait_s=0.0) as history:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="other runs are writing"):
            history.add(record())
        assert history.records() == (), "reading is not blocked"
        other.execute("ROLLBACK")
        history.add(record())
        assert history.records() == (record(),)
        other.close()


def test_a_broken_file_is_reported_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_bytes(b"no database at all, " * 100)
    with pytest.raises(HistoryError, match=r"(?s)cannot be used.*ELASTICHOST_HISTORY"):
        History(path)
    assert path.read_bytes().startswith(b"no database at all")


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        for number in range(200):
            history.add(record(number))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(HistoryError, match="cannot be used"), History(path) as history:
        history.records()


def test_a_newer_schema_is_reported_and_not_changed(tmp_path: Path) -> None:
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
def test_another_programs_database_is_not_changed(tmp_path: Path, version: int) -> None:
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
def test_an_impossible_path_is_reported(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    with pytest.raises(HistoryError, match=r"cannot be (created|used)"):
        History(tmp_path / where)


def test_one_unreadable_record_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as history:
        history.add(record(1))
        damaged = msgspec.json.encode(record()).replace(b'":"', b'":"\xff', 1)
        for data in (b"{", b'{"features": 3}', damaged):
            connection = sqlite3.connect(path)
            query = "INSERT INTO records (run, family, written_utc, record) VALUES ('', 'x', '', ?)"
            connection.execute(query, (data,))
            connection.commit()
            connection.close()
        history.add(record(2))
        assert history.records() == (record(2), record(1))
        assert history.unreadable == 3


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


def test_the_path_of_the_history() -> None:
    home = Path.home() / ".local" / "state" / "elastichost" / "history.sqlite"
    assert history_path({}) == home
    assert history_path({"XDG_STATE_HOME": ""}) == home
    assert history_path({"XDG_STATE_HOME": "/s"}) == Path("/s/elastichost/history.sqlite")
    assert history_path({"XDG_STATE_HOME": "/s", "ELASTICHOST_HISTORY": "/x/y"}) == Path("/x/y")
    assert history_path({"ELASTICHOST_HISTORY": "~/y"}) == Path.home() / "y"
    assert history_path({"ELASTICHOST_HISTORY": ""}) is None
    assert history_path({"ELASTICHOST_HISTORY": "off"}) is None


@pytest.mark.parametrize("own", ["~nobody-of-that-name/history.sqlite", None])
def test_without_a_home_directory_the_path_is_not_known(monkeypatch: pytest.MonkeyPatch, own: str | None) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # no user of this machine has this id
    with pytest.raises(HistoryError, match=r"(?s)is not known.*set ELASTICHOST_HISTORY"):
        history_path({} if own is None else {"ELASTICHOST_HISTORY": own})


# --- the search for near records --------------------------------------------------------------------------------------

SHOP = JobFeatures(family="models:dlrm", name="shop", tables=26, rows=10**7, batch_size=2048, samples=10**6, shape="a")


def finished(
    features: JobFeatures = SHOP, day: int = 1, *, ended_well: bool = True, workers: int = 3, speed: float = 100.0
) -> JobRecord:
    plan, memory = PlanSize(workers, 1), Estimates({"beta": -0.4}, {"beta": 0.1 + 0.01 * workers})
    return JobRecord(features, f"2026-03-{day:02}T00:00:00Z", plan, speed, plan, ended_well, "m", memory=memory)


def like(**changes: object) -> JobFeatures:
    return msgspec.structs.replace(SHOP, **changes)


any_features = st.builds(
    like,
    family=st.sampled_from(["models:dlrm", "mine:build"]),
    shape=st.sampled_from(["", "a", "b"]),
    name=st.sampled_from(["shop", "other"]),
    user=st.sampled_from(["", "ana"]),
    mode=st.sampled_from(["async", "sync"]),
    access=st.sampled_from(["direct", "served"]),
    tables=st.sampled_from([0, 20, 26, 52]),
    dynamic_tables=st.sampled_from([0, 1, 2, 8]),
    rows=st.sampled_from([0, 10**7, 2 * 10**7, 10**9]),
    mean_dim=st.sampled_from([0.0, 16.0, 24.5, 64.0]),
    batch_size=st.sampled_from([0, 1024, 2048, 3000]),
    samples=st.integers(1, 10**12),
    host_cores=st.sampled_from([0, 2, 64]),
    gpus=st.sampled_from([0, 1]),
)
any_record = st.builds(
    finished,
    st.just(SHOP) | any_features,
    st.integers(1, 3),
    ended_well=st.booleans(),
    workers=st.integers(1, 9),
    speed=st.sampled_from([0.0, 100.0, 100.0]),
)


def measured(records: Sequence[JobRecord]) -> list[JobRecord]:
    return [one for one in records if one.is_measured]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(any_record, max_size=40), st.just(SHOP) | any_features, st.integers(1, 6))
def test_the_near_records_are_those_that_a_search_of_all_finds(
    records: list[JobRecord], features: JobFeatures, k: int
) -> None:
    with History(Path(":memory:")) as kept:
        for one in records:
            kept.add(one)
        found = kept.near(features, METRIC, k)
        every, some = kept.records(), found.records
        assert nearest(features, measured(some), k) == nearest(features, measured(every), k)
        assert len(some) - len(measured(some)) <= k
        assert bool(neighbours(features, some, k)) == bool(neighbours(features, every, k))
        assert found.known == len(records) and kept.unreadable == 0
        if found.records:
            return
        away = [(distance(features, one.features), one.features.name or one.features.family) for one in records]
        if not away:
            assert found.closest is None
            return
        assert found.closest is not None
        assert found.closest[0] == pytest.approx(min(away)[0])
        assert found.closest in [(pytest.approx(far), name) for far, name in away]
        assert "no similar job among" in none_near(found.known, found.closest).reason


def test_every_feature_that_is_compared_is_in_the_narrow_rows() -> None:
    assert set(WORDS) <= set(store.WORDS) and set(SIZES) <= set(store.SIZES)
    assert {*store.WORDS, *store.SIZES} == set(JobFeatures.__struct_fields__)


def test_only_records_that_may_be_nearest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "h") as kept:
        for number in range(3000):
            kept.add(
                msgspec.structs.replace(finished(like(rows=10**7 + number), workers=1 + number % 9), written_utc="2026")
            )
        assert len(kept.near(SHOP, METRIC).records) == 3000, "all records with the rank of the last one"
        for day in range(2, 12):
            kept.add(finished(day=day))
        read: list[bytes] = []
        decoded = store._decoded
        monkeypatch.setattr(store, "_decoded", lambda data: read.append(data) or decoded(data))
        found = kept.near(SHOP, METRIC).records
        assert [one.written_utc[8:10] for one in found] == ["11", "10", "09", "08", "07"] and len(read) == 5


def test_a_near_record_that_cannot_be_read_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as kept:
        for day in (1, 2, 3):
            kept.add(finished(day=day))
        connection = sqlite3.connect(path)
        connection.execute("UPDATE records SET record = ? WHERE number = 2", (b'{"features": 3}',))
        connection.commit()
        connection.close()
        assert [one.written_utc[8:10] for one in kept.near(SHOP, METRIC).records] == ["03", "01"]
        assert kept.unreadable == 1


def test_a_deleted_record_is_no_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path, kept=3) as kept:
        for day in range(1, 8):
            kept.add(finished(day=day))
        found = kept.near(SHOP, METRIC)
        assert found.known == 3 and [one.written_utc[8:10] for one in found.records] == ["07", "06", "05"]


def test_runs_that_failed_do_not_crowd_out_those_that_were_measured(tmp_path: Path) -> None:
    with History(tmp_path / "h") as kept:
        kept.add(finished(day=1))
        for day in range(2, 30):
            kept.add(finished(day=day, speed=0.0))
        found = kept.near(SHOP, METRIC, 3).records
        assert [one.written_utc[8:10] for one in found] == ["29", "28", "27", "01"]


def test_a_failed_job_needs_a_smaller_distance_to_be_near() -> None:
    far = like(access="served")
    assert NEAR - METRIC.failed < distance(SHOP, far) < NEAR
    with History(Path(":memory:")) as kept:
        kept.add(finished(far, ended_well=False))
        assert kept.near(SHOP, METRIC).records == ()
        kept.add(finished(far))
        assert kept.near(SHOP, METRIC).records == (finished(far),)
