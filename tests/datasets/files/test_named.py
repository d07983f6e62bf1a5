"""The one file that a person names to a verb."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastichost.datasets.files import absolute_name, base_name, folder_name, named_file, readable
from elastichost.errors import DataError


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("clicks.csv", "clicks.csv"),
        ("/data/day 1/clicks.csv", "clicks.csv"),
        ("s3://bucket/day=1/clicks.csv?region=eu-west-1", "clicks.csv"),
        ("s3://bucket/what?.csv", "what?.csv"),
        ("https://host/day%201/clicks.parquet?signature=a%2Fb", "clicks.parquet"),
        ("https://host", ""),
    ],
)
def test_the_last_part_of_a_name(name: str, base: str) -> None:
    assert base_name(name) == base


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("/data/clicks/train.csv", "clicks"),
        ("s3://bucket/clicks/train.parquet?endpoint_override=http://h:9000", "clicks"),
        ("https://host/clicks/train.csv?token=a/b", "clicks"),
        ("s3://bucket/train.csv", ""),
    ],
)
def test_the_folder_of_a_name(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("y,c")
    found = named_file(tmp_path / "a.csv")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("elastichost.datasets.files.named.opened", refused)
    with pytest.raises(DataError, match=r"a\.csv: cannot be read \(Permission denied\)"):
        readable(found)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/donn\xe9es.csv")
    Path(path).write_text("y,c")
    with pytest.raises(DataError, match="its name is not UTF-8"):
        named_file(path)


def test_a_path_from_the_root_and_an_address_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_name("a.csv") == str(tmp_path.resolve() / "a.csv")
    assert absolute_name("s3://bucket/../a.csv") == "s3://bucket/../a.csv"


def test_a_file_a_folder_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,c")
    found = named_file(tmp_path / "a.csv")
    assert (found.path, found.size_bytes) == (str(tmp_path / "a.csv"), 3)
    with pytest.raises(DataError, match="is a folder"):
        named_file(tmp_path)
    with pytest.raises(DataError, match=r"aa\.csv: no such file; did you mean"):
        named_file(tmp_path / "aa.csv")
