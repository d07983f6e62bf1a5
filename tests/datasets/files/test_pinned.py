"""A run reads the files that it began with: later ones are left out, replaced ones are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files import (
    PINNED_FILE,
    PinnedFiles,
    find_files,
    read_pinned,
    write_pinned,
    written_again,
)
from elastichost.datasets.reader import UnitReader
from elastichost.errors import CheckpointError, DataError
from tests.datasets.conftest import all_batches, reader_of, settings, write_parquet

ROWS = 50
URL = "https://data.example/rows.parquet"


def written(path: Path, first: int) -> Path:
    """A file of the format of its suffix, whose ids begin at `first`."""
    ids = np.arange(ROWS, dtype=np.int64) + first
    columns = {"y": (ids % 2).astype(np.float32), "x": (ids / 7).astype(np.float32), "c": ids}
    if path.suffix == ".parquet":
        return write_parquet(path, columns)
    path.write_text("y,x,c\n" + "".join(f"{one % 2},{one / 7:.3f},{one}\n" for one in ids))
    return path


def pinned_reader(folder: Path, suffix: str, files: tuple[FileStamp, ...] = ()) -> UnitReader:
    types = {"c": "int"} if suffix == "csv" else {}
    return reader_of(settings(folder / f"*.{suffix}", suffix, pinned=files, csv_types=types))


def ids_of(reader: UnitReader) -> list[int]:
    return [int(key) for batch in all_batches(reader) for key in batch.keys]


@pytest.fixture(params=["parquet", "csv"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path, suffix: str) -> tuple[FileStamp, ...]:
    """The files of a run: `b` and `c`, in numbers of five figures, so that every file has as many bytes."""
    written(tmp_path / f"b.{suffix}", 20_000)
    written(tmp_path / f"c.{suffix}", 30_000)
    reader = pinned_reader(tmp_path, suffix)
    reader.describe()
    return reader.stamps()


def test_a_file_that_came_later_is_not_read(tmp_path: Path, suffix: str, files: tuple[FileStamp, ...]) -> None:
    expected = [*range(20_000, 20_000 + ROWS), *range(30_000, 30_000 + ROWS)]
    written(tmp_path / f"a.{suffix}", 10_000)
    later = pinned_reader(tmp_path, suffix, files)
    assert ids_of(later) == expected
    assert later.describe().files == tuple(one.path for one in files)
    assert ids_of(pinned_reader(tmp_path, suffix))[0] == 10_000, "without the names of the run, units have other rows"


def test_a_replaced_file_is_refused_although_it_has_as_many_rows(
    tmp_path: Path, suffix: str, files: tuple[FileStamp, ...]
) -> None:
    path = written(tmp_path / f"c.{suffix}", 40_000)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=rf"c\.{suffix}: was replaced after the run began"):
        pinned_reader(tmp_path, suffix, files).describe()
    resumed = pinned_reader(tmp_path, suffix, PinnedFiles(files).with_sizes_only().train)
    assert ids_of(resumed)[-1] == 40_000 + ROWS - 1, "a run that is resumed takes a file of the same size"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(DataError, match="was replaced after the run began"):
        pinned_reader(tmp_path, suffix, PinnedFiles(files).with_sizes_only().train).describe()


def test_a_file_of_the_run_that_is_gone_is_named(tmp_path: Path, suffix: str, files: tuple[FileStamp, ...]) -> None:
    (tmp_path / f"b.{suffix}").unlink()
    with pytest.raises(DataError, match=rf"b\.{suffix}: No such file"):
        pinned_reader(tmp_path, suffix, files).describe()


def test_without_names_the_patterns_are_asked(tmp_path: Path) -> None:
    path = written(tmp_path / "b.csv", 1)
    assert find_files([str(tmp_path / "*.csv")], ()) == ((str(path),), ())
    assert find_files([str(tmp_path / "*.tsv")], ())[1]


def test_the_names_are_kept_in_the_run_directory(tmp_path: Path) -> None:
    files = PinnedFiles((FileStamp("/a", 1, 2), FileStamp(URL, 3, 4)), (FileStamp("/t", 5, 6),))
    assert read_pinned(tmp_path) == PinnedFiles()
    write_pinned(tmp_path, files)
    assert read_pinned(tmp_path) == files
    elsewhere = files.for_other_hosts()
    assert [one.modified_ns for one in elsewhere.train] == [-1, 4], "an address is the same file on every machine"
    assert [one.modified_ns for one in elsewhere.test] == [-1]
    for damaged in (
        b"{",
        b'{"train": [["\xff", 1, 2]]}',
        (tmp_path / PINNED_FILE).read_bytes().replace(b"/a", b"/\xff"),
    ):
        (tmp_path / PINNED_FILE).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=PINNED_FILE):
            read_pinned(tmp_path)


def test_files_that_were_written_again_are_told() -> None:
    before = PinnedFiles((FileStamp("/a", 1, 2), FileStamp("/b", 1, 2)), (FileStamp("/a", 1, 2),))
    assert written_again(before, before) == ()
    assert written_again(PinnedFiles(), before) == ()
    now = PinnedFiles((FileStamp("/a", 1, 9), FileStamp("/b", 1, 2)), (FileStamp("/a", 1, 9),))
    assert written_again(before, now)[0].startswith("/a was written since the run began")
    both = PinnedFiles((FileStamp("/a", 1, 9), FileStamp("/b", 1, 9)))
    assert written_again(before, both)[0].startswith("/a and 1 more files were written")
