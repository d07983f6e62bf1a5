"""The index finds what a search of all records finds, whatever they are, and reads few of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.history import index as history_index
from elastichost.history import store as history
from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.history.store import History, Neighbours
from elastichost.tuner.warm_start import METRIC, NEAR, SIZES, WORDS, distance, nearest, neighbours, none_near

SHOP = JobFeatures(family="models:dlrm", name="shop", tables=26, rows=10**7, batch_size=2048, samples=10**6, shape="a")


def record(
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
    record,
    st.just(SHOP) | any_features,
    st.integers(1, 3),
    ended_well=st.booleans(),
    workers=st.integers(1, 9),
    speed=st.sampled_from([0.0, 100.0, 100.0]),
)


def measured(records: Sequence[JobRecord]) -> list[JobRecord]:
    return [one for one in records if one.is_measured]


@settings(max_examples=200, deadline=None)
@given(st.lists(any_record, max_size=40), st.just(SHOP) | any_features, st.integers(1, 6))
def test_the_index_finds_what_a_search_of_all_finds(records: list[JobRecord], features: JobFeatures, k: int) -> None:
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
        assert "is similar enough to learn from: the most similar" in none_near(found.known, found.closest).reason


def test_every_feature_that_is_compared_is_in_the_index() -> None:
    assert set(WORDS) <= set(history_index.WORDS) and set(SIZES) <= set(history_index.SIZES)
    assert {*history_index.WORDS, *history_index.SIZES} == set(JobFeatures.__struct_fields__)


def test_of_thousands_only_those_that_may_be_nearest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "h") as kept:
        with kept._writing():
            for number in range(3000):
                data = msgspec.json.encode(record(like(rows=10**7 + number), workers=1 + number % 9))
                values = ("", f"{number:05}", data)
                kept._connection.execute("INSERT INTO records (family, ended_utc, record) VALUES (?, ?, ?)", values)
        assert len(kept.near(SHOP, METRIC).records) == 3000, "all as near and as new as the last"
        for day in range(2, 12):
            kept.add(record(day=day))
        read: list[bytes] = []
        decoded = history._decoded
        monkeypatch.setattr(history, "_decoded", lambda data: read.append(data) or decoded(data))
        found = kept.near(SHOP, METRIC).records
        assert [one.ended_utc[8:10] for one in found] == ["11", "10", "09", "08", "07"] and len(read) == 5


def test_records_of_versions_without_an_index_are_found(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path) as kept:
        kept.add(record(day=1))
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE features")  # as a file of before is
    connection.commit()

    def add_as_before(data: bytes) -> None:
        connection.execute("INSERT INTO records (family, ended_utc, record) VALUES ('x', '', ?)", (data,))
        connection.commit()

    add_as_before(b"{")
    add_as_before(msgspec.json.encode(record(day=2)))
    with History(path) as kept:
        assert kept.near(SHOP, METRIC) == Neighbours((record(day=2), record(day=1)), 2)
        assert kept.unreadable == 1
        add_as_before(msgspec.json.encode(record(day=3)))  # by one that runs at the same time
        kept.add(record(day=4))
        assert [one.ended_utc for one in kept.near(SHOP, METRIC).records] == [
            f"2026-03-0{day}T00:00:00Z" for day in (4, 3, 2, 1)
        ]
    connection.close()


def test_what_is_no_longer_kept_is_no_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with History(path, kept=3) as kept:
        for day in range(1, 8):
            kept.add(record(day=day))
        found = kept.near(SHOP, METRIC)
        assert found.known == 3 and [one.ended_utc[8:10] for one in found.records] == ["07", "06", "05"]
    connection = sqlite3.connect(path)  # a version without an index leaves entries behind
    connection.execute("DELETE FROM records WHERE number = (SELECT max(number) FROM records)")
    connection.commit()
    connection.close()
    with History(path) as kept:
        assert [one.ended_utc[8:10] for one in kept.near(SHOP, METRIC).records] == ["06", "05"]


def test_runs_that_failed_do_not_crowd_out_those_that_were_measured(tmp_path: Path) -> None:
    with History(tmp_path / "h") as kept:
        kept.add(record(day=1))
        for day in range(2, 30):
            kept.add(record(day=day, speed=0.0))
        found = kept.near(SHOP, METRIC, 3).records
        assert [one.ended_utc[8:10] for one in found] == ["29", "28", "27", "01"]


def test_a_failed_job_is_near_only_if_it_is_nearer() -> None:
    far = like(access="served")
    assert NEAR - METRIC.failed < distance(SHOP, far) < NEAR
    with History(Path(":memory:")) as kept:
        kept.add(record(far, ended_well=False))
        assert kept.near(SHOP, METRIC).records == ()
        kept.add(record(far))
        assert kept.near(SHOP, METRIC).records == (record(far),)
