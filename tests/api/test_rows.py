"""PythonRows in place of files: what is taken, what is refused with what to write, and where the rows lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import elastichost as eh
from elastichost.api.rows import PythonRows
from elastichost.errors import ConfigError, DataError
from elastichost.runs.directory import is_before_run, remove_run_files

COLUMNS: dict[str, Any] = {"label": "y", "categorical": ["item"]}
TABLE = pa.table({"y": [0, 1], "item": [7, 8]})


def make_rows() -> Iterator[dict[str, int]]:
    yield {"y": 0, "item": 7}
    yield {"y": 1, "item": 8}


def written(rows: PythonRows, run_dir: Path, needed: tuple[str, ...] = ()) -> Path:
    return rows.write("train", run_dir, needed, lambda line: None)


SOURCES: tuple[Callable[[], Any], ...] = (
    lambda: make_rows,
    lambda: make_rows(),
    lambda: list(make_rows()),
    lambda: TABLE,
    lambda: TABLE.to_reader(),
    lambda: TABLE.to_batches(),
    lambda: lambda: TABLE,
    lambda: TABLE.to_pandas(),
    lambda: (TABLE.to_pandas() for _ in range(1)),
)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_taken_from_what_people_have(source: Callable[[], Any], tmp_path: Path) -> None:
    path = written(eh.from_iterable(source()), tmp_path / "run")
    assert path == tmp_path / "run" / "data" / "train.parquet"
    assert pq.read_table(path).to_pydict() == TABLE.to_pydict()


def test_a_job_carries_its_rows_until_files_replace_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = eh.from_iterable(make_rows)
    data = eh.Data(train=rows, test=TABLE, **COLUMNS)
    assert repr(data).startswith("Data(train=<rows of make_rows>, test=<rows of a Table>, label='y'")
    for given in (data, {"train": rows, "test": TABLE, **COLUMNS}):
        job = eh.Job.of("m.py:build", given)
        assert (job.rows["train"], set(job.rows)) == (rows, {"train", "test"})
        assert job.spec.data.train == (f"{tmp_path}/data/train.parquet",)
    assert job.with_settings(train={"epochs": 2}).rows == job.rows
    changed = job.with_settings(data={"test": "other.parquet"})
    assert set(changed.rows) == {"train"} and changed.spec.data.test == (f"{tmp_path}/other.parquet",)
    assert job.with_settings(data={"train": make_other}).rows["train"] is make_other


make_other = eh.from_iterable(make_rows)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: eh.from_iterable("clicks.parquet"), "write eh.Data(train='clicks.parquet', ...)"),
        (lambda: eh.from_iterable({"y": [1]}), "a mapping is one row, not rows"),
        (lambda: eh.from_iterable(3), "a int has no rows"),
        (lambda: eh.from_iterable(make_rows, unit_rows=0), "unit_rows = 0: allowed: a whole number from 1 to 262,144"),
        (lambda: eh.from_iterable(make_rows, name="../x"), "name = '../x': allowed: letters"),
        (lambda: eh.from_iterable(make_rows, schema={"y": "int"}), "give a pyarrow.schema"),
        (lambda: eh.from_iterable(list(make_rows()), name="clicks"), "add a fingerprint"),
        (lambda: eh.Data(train=list(make_rows()), **COLUMNS), "write train=eh.from_iterable(...)"),
        (lambda: eh.Data(train=[make_other], **COLUMNS), "write train=eh.from_iterable(...)"),
        (lambda: eh.Data(train=make_rows, **COLUMNS), "write train=eh.from_iterable(...)"),
        (lambda: eh.Data(train=make_rows(), **COLUMNS), "write train=eh.from_iterable(...)"),
        (lambda: eh.Data(train={"y": 1}, **COLUMNS), "a mapping is one row"),
        (lambda: eh.Data(train=[TABLE], **COLUMNS), "a table is the train or the test of a job"),
        (lambda: eh.Data(train=make_other, format="csv", **COLUMNS), "leave out format"),
    ],
)
def test_other_things_are_refused_with_what_to_write(made: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made()
    assert said in str(caught.value)


def test_a_function_that_returns_no_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a NoneType has no rows"):
        written(eh.from_iterable(lambda: None), tmp_path)


def test_an_object_is_read_once_for_all_runs(tmp_path: Path) -> None:
    rows = eh.from_iterable(make_rows())
    first = written(rows, tmp_path / "a")
    assert written(rows, tmp_path / "b").samefile(first), "a second run has a link"
    for path in (tmp_path / "a", tmp_path / "b"):
        os.unlink(path / "data" / "train.parquet")
    with pytest.raises(ConfigError, match="an iterator can be read only once"):
        written(rows, tmp_path / "c")
    of_function = eh.from_iterable(make_rows)
    os.unlink(written(of_function, tmp_path / "a"))
    assert written(of_function, tmp_path / "a").exists(), "a function is called again"


def test_rows_of_another_object_are_not_used_unless_a_fingerprint_says_so(tmp_path: Path) -> None:
    for fingerprint, calls in (("", 2), ("monday", 1), (7, 1)):
        asked = []
        for _ in range(2):
            rows = eh.from_iterable(lambda kept=asked: kept.append(1) or make_rows(), fingerprint=fingerprint)
            written(rows, tmp_path / "run")
        assert len(asked) == calls, fingerprint


def test_rows_with_a_name_lie_beside_all_runs(tmp_path: Path) -> None:
    asked = []

    def counted() -> Iterator[dict[str, int]]:
        asked.append(1)
        return make_rows()

    def named(**more: Any) -> Path:
        return written(eh.from_iterable(counted, name="clicks", **more), tmp_path / f"run-{len(asked)}")

    first = named()
    assert first.parent == tmp_path / "data" and first.name.startswith("clicks-")
    assert named() == first and len(asked) == 1
    assert named(fingerprint="tuesday") != first and len(asked) == 2
    assert named(unit_rows=10) != first and len(asked) == 3
    other = written(eh.from_iterable(make_rows, name="clicks"), tmp_path / "run")
    assert other != first, "the text of the function is another one"
    assert first.exists(), "runs that can be resumed read it"


def test_columns_of_the_job_are_checked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data.train: the rows have no column 'itme'"):
        written(eh.from_iterable(make_rows), tmp_path, ("y", "itme"))


def test_wrong_rows_end_the_start_before_a_run_begins(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": pd.Series([1, "no"], dtype=object), "item": [1, 2]})
    with pytest.raises(DataError, match=r"data.train: row 1 .*column 'y': 'no' \(str\) is not int64"):
        eh.train(model="elastichost.models:dlrm", data=eh.Data(train=frame, **COLUMNS), dir=tmp_path / "run")
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == []


def test_a_start_that_fails_keeps_the_rows_only(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("a")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "latest").symlink_to("logs")
    kept = written(eh.from_iterable(make_rows), tmp_path)
    assert not is_before_run(tmp_path)
    remove_run_files(tmp_path)
    assert list(tmp_path.iterdir()) == [kept.parent] and kept.exists()
    assert is_before_run(tmp_path)
    kept.unlink()
    kept.parent.rmdir()
    remove_run_files(tmp_path)
    assert not tmp_path.exists()
