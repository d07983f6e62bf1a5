"""The file of spooled rows: complete or absent, its own rows or none; a killed process leaves nothing that is used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.datasets.spool.spool_file import SpoolPlan, spooled_rows, write_spool
from elastichost.errors import DataError
from tests.full_disk import file_limit

PLAN = SpoolPlan("data.train", "one", unit_rows=4)


def rows(count: int = 10) -> Iterator[dict[str, int]]:
    return ({"y": number % 2, "item": number} for number in range(count))


def never() -> Iterable[object]:
    raise AssertionError("these rows are there already")


def test_row_groups_have_the_size_of_units(tmp_path: Path) -> None:
    path, told = tmp_path / "made" / "train.parquet", list[int]()
    tables = [pa.table({"y": [1] * count}) for count in (1, 9, 3)]
    assert write_spool(path, PLAN, lambda: tables, told.append) == 13
    footer = pq.read_metadata(path)
    assert [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] == [4, 4, 4, 1]
    assert told == [1, 10, 13]
    assert os.listdir(path.parent) == [path.name]


def test_a_spool_of_the_same_rows_is_used_and_of_others_replaced(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    assert write_spool(path, PLAN, lambda: rows(10)) == 10
    assert write_spool(path, PLAN, never) == 10
    assert (spooled_rows(path, "one"), spooled_rows(path, "two")) == (10, None)
    assert write_spool(path, replace(PLAN, identity="two"), lambda: rows(3)) == 3
    path.write_bytes(path.read_bytes()[:-4])
    assert write_spool(path, replace(PLAN, identity="two"), lambda: rows(3)) == 3, "a damaged file is made anew"


@pytest.mark.parametrize("has_links", [True, False])
def test_rows_that_lie_elsewhere_are_linked(tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, path = tmp_path / "a" / "train.parquet", tmp_path / "b" / "train.parquet"
    plan = replace(PLAN, earlier=earlier)
    assert write_spool(path, plan, lambda: rows(3)) == 3, "the earlier one is not there"
    path.unlink()
    write_spool(earlier, PLAN, lambda: rows(10))
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    assert write_spool(path, plan, never) == 10
    assert path.samefile(earlier) is has_links
    assert pq.read_table(path) == pq.read_table(earlier)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("error", [KeyError("mine"), FileNotFoundError("my own file"), KeyboardInterrupt()])
def test_an_error_of_the_source_passes_through_and_leaves_no_file(tmp_path: Path, error: BaseException) -> None:
    def failing() -> Iterator[dict[str, int]]:
        yield from rows(9)
        raise error

    path = tmp_path / "train.parquet"
    with pytest.raises(type(error)) as caught:
        write_spool(path, PLAN, failing)
    assert caught.value is error
    assert os.listdir(tmp_path) == []


def test_rows_that_lack_a_column_of_the_job_are_refused_before_all_are_read(tmp_path: Path) -> None:
    asked = 0

    def counted() -> Iterator[dict[str, int]]:
        nonlocal asked
        for row in rows(1000):
            asked += 1
            yield row

    plan = replace(PLAN, needed=("y", "itme"))
    with pytest.raises(DataError, match=r"data.train: the rows have no column 'itme'; did you mean \"item\""):
        write_spool(tmp_path / "train.parquet", plan, counted)
    assert asked == PLAN.unit_rows
    with pytest.raises(DataError, match=r"data.train: there is no row"):
        write_spool(tmp_path / "train.parquet", PLAN, list)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_a_typed_error_and_the_file_of_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_spool(path, PLAN, lambda: rows(3))
    with file_limit(2000), pytest.raises(DataError, match=r"train.parquet: the rows cannot be written there"):
        write_spool(path, replace(PLAN, identity="two"), lambda: rows(20_000))
    assert spooled_rows(path, "one") == 3
    assert os.listdir(tmp_path) == [path.name]


SPOOLS = """
import sys
from pathlib import Path
from elastichost.datasets.spool.spool_file import SpoolPlan, write_spool

def rows():
    for number in range(20_000):
        yield {"y": number}
    print("half", flush=True)
    sys.stdin.read()  # until it is killed

write_spool(Path(sys.argv[1]), SpoolPlan("data.train", "one", unit_rows=1000), rows)
"""


def test_a_killed_process_leaves_nothing_that_is_used_and_a_living_one_is_not_disturbed(tmp_path: Path) -> None:
    path, partial = tmp_path / "train.parquet", tmp_path / ".train.parquet.partial"
    command = [sys.executable, "-c", SPOOLS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "half\n"
        with pytest.raises(DataError, match=r"train.parquet: another process writes these rows now"):
            write_spool(path, PLAN, rows)
        assert not path.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert partial.stat().st_size > 0, "it wrote its first units"
    assert not path.exists()
    assert write_spool(path, PLAN, rows) == 10
    assert pq.read_table(path).column("item").to_pylist() == list(range(10))
    assert os.listdir(tmp_path) == [path.name]
