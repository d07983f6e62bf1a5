"""Samples of files: formats, parts of large files, damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.datasets.inference import sample as module
from elastichost.datasets.inference.sample import read_sample
from elastichost.errors import DataError
from tests.datasets.sources.s3_server import S3Server, s3_environment, store

__all__ = ["s3_environment", "store"]

CSV = "clicked;item;seen\n1;7;a|b\n0;8;c\n"


def test_a_csv_file_with_its_delimiters_and_types(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(CSV)
    found = read_sample(path)
    assert (found.format, found.rows, found.delimiter, found.list_delimiter) == ("csv", 2, ";", "|")
    assert found.text_types == {"clicked": "int", "item": "int", "seen": "list[string]"}
    assert found.table.column("item").to_pylist() == [7, 8]


def test_a_csv_file_with_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "claims.csv"
    path.write_text("clicked;item;amount\n1;7;1541,87\n0;8;\n1;9;12\n")
    found = read_sample(path)
    assert (found.decimal, found.delimiter) == (",", ";")
    assert found.text_types == {"clicked": "int", "item": "int", "amount": "float"}
    assert found.table.column("amount").to_pylist() == [1541.87, None, 12]
    path.write_text('clicked,item,amount\n1,7,"1541,87"\n')
    assert read_sample(path).decimal == ".", "one comma cannot be both"
    path.write_text("clicked;item;amount;rate\n1;7;1541,87;0.5\n")
    found = read_sample(path)
    assert (found.decimal, found.text_types) == (
        ".",
        {"clicked": "int", "item": "int", "amount": "string", "rate": "float"},
    )


def test_a_compressed_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode()))
    assert read_sample(path).text_types == {"clicked": "int", "item": "int", "seen": "list[string]"}
    path.write_bytes(gzip.compress(CSV.encode())[:-12])
    with pytest.raises(DataError, match="damaged"):
        read_sample(path)


def test_the_last_line_of_a_part_of_a_file_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("clicked,item\n" + "1,123456\n" * 100)
    monkeypatch.setattr(module, "TEXT_BYTES", 200)
    found = read_sample(path)
    assert found.rows is None
    assert set(found.table.column("item").to_pylist()) == {123456}


@pytest.mark.parametrize("content", [CSV.encode(), gzip.compress(CSV.encode(), mtime=0)], ids=["plain", "gzip"])
def test_a_text_file_is_opened_once(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(content)
    names: list[str] = []
    real = open
    monkeypatch.setattr("builtins.open", lambda name, *how, **more: names.append(name) or real(name, *how, **more))
    found = read_sample(path)
    assert (names, found.first_bytes) == ([str(path)], content[:4])


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
def test_a_file_in_a_store_is_read_as_the_file_here(tmp_path: Path, store: S3Server, kind: str) -> None:
    path = tmp_path / f"clicks.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"y": range(1000), "x": range(1000)}), path, row_group_size=100)
    else:
        path.write_bytes(gzip.compress(CSV.encode()) if kind == "csv.gz" else CSV.encode())
    store.put_file(path, f"sample/{path.name}")
    assert read_sample(store.url(f"sample/{path.name}")) == read_sample(path)


def test_of_large_row_groups_in_a_store_fewer_are_read(
    tmp_path: Path, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clicks.parquet"
    pq.write_table(pa.table({"y": range(4000)}), path, row_group_size=1000)
    store.put_file(path, "sample/large.parquet")
    monkeypatch.setattr(module, "REMOTE_BYTES", 1)
    found = read_sample(store.url("sample/large.parquet"))
    assert (found.rows, found.table.column("y").to_pylist()) == (4000, list(range(1000)))


def test_a_file_that_is_not_in_the_store(store: S3Server) -> None:
    with pytest.raises(DataError, match=r"sample/absent\.csv.*no such file in the store"):
        read_sample(store.url("sample/absent.csv"))


def test_lines_with_too_many_fields_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("clicked,item\n1,7\n0,8,9\n0,6\n")
    assert read_sample(path).table.column("item").to_pylist() == [7, 6]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\n\r\n\n", b""], ids=repr)
def test_empty_lines_at_the_end_are_no_rows(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(b"clicked,item\n1,7\n0,8" + end)
    found = read_sample(path)
    assert (found.rows, found.text_types) == (2, {"clicked": "int", "item": "int"})
    assert found.table.to_pydict() == {"clicked": [1, 0], "item": [7, 8]}


def test_empty_lines_at_the_end_of_a_part_of_a_file_are_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("clicked,item\n1,7\n0,8\n" + "\n" * 100)
    monkeypatch.setattr(module, "TEXT_BYTES", 50)
    assert read_sample(path).table.column("item").to_pylist() == [7, 8]


def test_quoted_fields_and_empty_lines_before_the_last_row_stay(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(b'clicked,item\n1,"a\r"\n\n0,"b\r"\n\n')
    assert read_sample(path).table.column("item").to_pylist() == ["a\r", None, "b\r"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2,3\n4,5,6\n", "line 2: 3 fields where 2 are expected; none of the rows"),
        (b"a,b\n1,\xff\n4,\xff\n", "line 2, column 'b': .* is not UTF-8 text; none of the rows"),
    ],
)
def test_a_file_without_a_good_row_names_the_first_bad_one(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_sample(path)
    assert "each row needs 2 fields" in caught.value.hint and "row.names = FALSE" in caught.value.hint


def test_a_parquet_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clicks.parquet"
    pq.write_table(pa.table({"item": list(range(1000))}), path, row_group_size=100)
    monkeypatch.setattr(module, "ROWS", 40)
    found = read_sample(path)
    assert (found.format, found.rows, found.table.num_rows) == ("parquet", 1000, 40)
    values = found.table.column("item").to_pylist()
    assert (values[0], values[-1]) == (0, 909), "the first and the last row group are read"


def test_criteo_files_are_known_by_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    path.write_text("\t".join(["1"] + ["2"] * 13 + ["68fd1e64"] * 26) + "\n")
    assert read_sample(path).format == "criteo_tsv"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"clicked,item\n\n\r\n", "no rows"),
        (b"clicked,item\n", "no rows"),
        (b"\xff\xfe\x00,a\n1,2\n", "not UTF-8"),
        (b"PAR1xx", "Parquet"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_sample(path)
    with pytest.raises(DataError, match="did you mean"):
        read_sample(tmp_path / "click.csv")
    with pytest.raises(DataError, match="folder"):
        read_sample(tmp_path)


def test_the_rows_of_a_file_of_which_a_part_is_read_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("clicked,item\n" + "1,123456\n" * 1000)
    assert read_sample(path).about_rows == 1000
    monkeypatch.setattr(module, "TEXT_BYTES", 500)
    assert read_sample(path).about_rows == pytest.approx(1000, rel=0.05)


def test_of_a_large_row_group_a_part_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({"x": range(100_000), "y": [0] * 100_000}), path, row_group_size=100_000)
    monkeypatch.setattr(module, "ROWS", 1000)
    before = pa.total_allocated_bytes()
    found = read_sample(path)
    assert found.table.num_rows == 1000
    assert pa.total_allocated_bytes() - before < 200_000, "the whole group has 1.6 MB"
