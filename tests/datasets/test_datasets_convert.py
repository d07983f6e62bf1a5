"""Text to Parquet: the samples are the same, only complete files appear, bad rows are counted or named."""

from __future__ import annotations

import gzip
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_proxy import SourceProxy
from elastichost.cli import run_command_line
from elastichost.datasets.sources.single_requests import PatientPolicy
from elastichost.datasets.text import convert as convert_module
from elastichost.datasets.text.convert import convert, format_of
from elastichost.errors import DataError
from elastichost.wire.control_work import SourceTroubleMsg
from tests.datasets.sources.s3_server import S3Server, s3_environment, store

from .conftest import all_batches, assert_same_samples, criteo_line, criteo_settings, reader_of

__all__ = ["s3_environment", "store"]


def criteo_text(lines: int) -> str:
    return "".join(
        criteo_line(str(row % 2), "" if row % 3 else str(row), "" if row % 5 else f"{row:08x}") + "\n"
        for row in range(lines)
    )


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_criteo_gives_the_same_samples(
    tmp_path: Path, compressed: bool, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "BLOCK_BYTES", block_bytes)
    text = tmp_path / "day.tsv"
    text.write_text(criteo_text(50))
    source = tmp_path / "day.gz" if compressed else text
    if compressed:
        source.write_bytes(gzip.compress(text.read_bytes()))
    seen: list[int] = []
    destination = tmp_path / "day.parquet"
    report = convert(source, destination, format="criteo_tsv", row_group_rows=20, progress=seen.append)
    assert (report.rows, report.bad_rows, report.row_groups, seen[-1]) == (50, 0, 3, 50)
    assert report.destination_bytes == destination.stat().st_size
    metadata = pq.read_metadata(destination)
    assert [metadata.row_group(group).num_rows for group in range(3)] == [20, 20, 10]
    parquet = reader_of(criteo_settings(destination, format="parquet"))
    assert_same_samples(all_batches(reader_of(criteo_settings(text))), all_batches(parquet), 26)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (criteo_line(fields=7), "line 4: 7 fields where 40 are expected"),
        (criteo_line(label="3"), "line 4, column 'label': label is 3, not 0 or 1"),
        (criteo_line(integers="q"), "line 4, column 'I1': 'q' is not a 64-bit integer"),
    ],
)
def test_bad_rows_are_named_or_counted(
    tmp_path: Path, line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "BLOCK_BYTES", 300)
    source = tmp_path / "day.tsv"
    source.write_text(criteo_text(3) + line + "\n" + criteo_text(2) + "\n\n")
    destination = tmp_path / "day.parquet"
    with pytest.raises(DataError) as raised:
        convert(source, destination, format="criteo_tsv")
    assert f"{source}: {message}" in raised.value.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day.tsv"]
    report = convert(source, destination, format="criteo_tsv", bad_rows="skip")
    assert (report.rows, report.bad_rows) == (5, 1)
    assert message in report.first_bad_row


def test_a_line_that_is_not_text_is_a_bad_row_and_the_hint_names_the_option(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "day.tsv"
    source.write_bytes(
        bytes(range(256)).replace(b"\t", b" ").replace(b"\r", b" ") * 3 + b"\n" + criteo_line().encode() + b"\n"
    )
    with pytest.raises(DataError, match=r"line 1: 1 fields where 40 are expected") as raised:
        convert(source, tmp_path / "day.parquet", format="criteo_tsv")
    assert raised.value.hint == "correct the data, or convert with --bad-rows skip"
    with pytest.raises(DataError, match="none.tsv: no such file") as missing:
        convert(tmp_path / "none.tsv", tmp_path / "day.parquet", format="criteo_tsv")
    assert "job file" not in missing.value.hint
    assert capfd.readouterr().err == ""


def test_types_of_csv_columns_are_inferred_without_loss(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text(f'int,big,zip,price,word,empty,tags\n1,{2**70},007,1.5,a,,x|y\n{2**63 - 1},1,10,,"b,c",,\n')
    destination = tmp_path / "a.parquet"
    convert(source, destination, format="csv", types={"tags": "list[string]"})
    assert pq.read_table(destination).to_pydict() == {
        "int": [1, 2**63 - 1],
        "big": [str(2**70), "1"],
        "zip": ["007", "10"],
        "price": [1.5, None],
        "word": ["a", "b,c"],
        "empty": [None, None],
        "tags": [["x", "y"], []],
    }
    assert pq.read_schema(destination).field("empty").type == pa.string()


def test_missing_numbers_of_a_file_whose_fields_are_all_quoted(tmp_path: Path) -> None:
    source, destination = tmp_path / "a.csv", tmp_path / "a.parquet"
    source.write_text('"price","count","word"\n"1.5","","a"\n"","4",""\n')
    convert(source, destination, format="csv")
    assert pq.read_table(destination).to_pydict() == {
        "price": [1.5, None],
        "count": [None, 4],
        "word": ["a", ""],
    }


def test_decimal_commas_become_numbers(tmp_path: Path) -> None:
    source, destination = tmp_path / "a.csv", tmp_path / "a.parquet"
    source.write_text("price;count;word\n1541,87;3;a,b\n-0,5;4;1,2,3\n")
    convert(source, destination, format="csv", delimiter=";", decimal=",")
    assert pq.read_table(destination).to_pydict() == {
        "price": [1541.87, -0.5],
        "count": [3, 4],
        "word": ["a,b", "1,2,3"],
    }
    convert(source, destination, format="csv", delimiter=";")
    assert pq.read_schema(destination).field("price").type == pa.string()


def test_a_later_value_that_does_not_fit_the_inferred_type_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "BLOCK_BYTES", 8)
    source = tmp_path / "a.csv"
    source.write_text("c\n" + "1\n" * 20 + "abc\n")
    with pytest.raises(DataError, match="line 22, column 'c': 'abc' is not a 64-bit integer"):
        convert(source, tmp_path / "a.parquet", format="csv")
    assert convert(source, tmp_path / "a.parquet", format="csv", types={"c": "string"}).rows == 21


def test_damaged_gzip(tmp_path: Path) -> None:
    source = tmp_path / "day.gz"
    source.write_bytes(gzip.compress(criteo_text(500).encode())[:-20])
    with pytest.raises(DataError, match="damaged gzip"):
        convert(source, tmp_path / "day.parquet", format="criteo_tsv")
    assert [path.name for path in tmp_path.iterdir()] == ["day.gz"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_a_file_in_a_store_is_converted_though_the_store_goes_away(tmp_path: Path, store: S3Server, kind: str) -> None:
    rows = np.random.default_rng(7).integers(0, 1 << 30, (60_000, 3))
    text = "y,c,d\n" + "".join(f"{y % 2},{c},{d}\n" for y, c, d in rows)
    source = tmp_path / f"rows.{kind}"
    source.write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.encode())
    store.put_file(source, f"convert/rows.{kind}")
    here = convert(source, tmp_path / "here.parquet", format="csv")
    told: list[SourceTroubleMsg] = []
    with SourceProxy("127.0.0.1", store.port, bytes_per_s=2e6) as proxy:

        def say(trouble: SourceTroubleMsg) -> None:
            told.append(trouble)
            proxy.order(Order("gone", 0.0))

        url, waiting = store.url(f"convert/rows.{kind}", proxy.endpoint), PatientPolicy(60.0, say)
        assert format_of(url, waiting) == "csv"
        proxy.order(Order("gone", 600.0))
        there = convert(url, tmp_path / "there.parquet", format="csv", waiting=waiting)
    assert [one.trouble for one in told][-1] == "recovered" and len(told) > 1
    assert (there.rows, there.source_bytes, there.source) == (60_000, here.source_bytes, url)
    assert pq.read_table(tmp_path / "there.parquet").equals(pq.read_table(tmp_path / "here.parquet"))


def test_conversions_that_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("a,b\n")
    with pytest.raises(DataError, match="has a header line, but no rows"):
        convert(source, tmp_path / "b.parquet", format="csv")
    with pytest.raises(DataError, match=r"no column 'c' in the header"):
        convert(source, tmp_path / "b.parquet", format="csv", types={"c": "int"})
    with pytest.raises(DataError, match="'date' of column 'a' is not a type"):
        convert(source, tmp_path / "b.parquet", format="csv", types={"a": "date"})
    with pytest.raises(DataError, match="same file"):
        convert(source, source, format="csv")
    with pytest.raises(DataError, match="cannot be written: its folder does not exist"):
        convert(source, tmp_path / "none" / "b.parquet", format="csv")
    with pytest.raises(DataError, match='aa.csv: no such file; did you mean "a.csv"?'):
        convert(tmp_path / "aa.csv", tmp_path / "b.parquet", format="csv")
    with pytest.raises(DataError, match="is a folder"):
        format_of(tmp_path)
    with pytest.raises(DataError, match="is an address without its second slash"):
        format_of(Path("https://example.org/a.csv"))
    with pytest.raises(DataError, match="give the path of the file, without file:"):
        format_of("file:///data/a.csv")
    (tmp_path / "mac.csv").write_bytes(b"y,c\r1,7\r0,8\r")
    with pytest.raises(DataError, match="the header is no line of CSV"):
        convert(tmp_path / "mac.csv", tmp_path / "b.parquet", format="csv")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(DataError, match="is empty"):
        format_of(tmp_path / "empty.csv")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="is a Parquet file already"):
        format_of(tmp_path / "a.parquet")


@pytest.mark.parametrize(("delimiter", "shown"), [(";", "';'"), ("\t", r"'\t'")])
def test_a_csv_with_another_delimiter_is_refused_with_the_option_that_reads_it(
    tmp_path: Path, delimiter: str, shown: str
) -> None:
    source = tmp_path / "a.csv"
    source.write_text("y,c\n1,2\n".replace(",", delimiter))
    with pytest.raises(DataError, match="line 1 has one column") as raised:
        convert(source, tmp_path / "a.parquet", format="csv")
    assert raised.value.hint == f"convert it with --delimiter {shown}"
    convert(source, tmp_path / "a.parquet", format="csv", delimiter=delimiter)
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"y": [1], "c": [2]}


def test_the_format_is_found_from_the_first_line(tmp_path: Path) -> None:
    criteo, table = tmp_path / "day.txt", tmp_path / "day.csv.gz"
    criteo.write_text(criteo_text(3))
    table.write_bytes(gzip.compress(b"label,item\n1,a\n"))
    assert (format_of(criteo), format_of(table)) == ("criteo_tsv", "csv")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"label,item\n1,a\n" * 1000)[:20])
    with pytest.raises(DataError, match="cut.gz: damaged gzip data"):
        format_of(tmp_path / "cut.gz")


def test_a_csv_file_converted_as_criteo_gets_a_hint_about_the_format(tmp_path: Path) -> None:
    source = tmp_path / "day.csv"
    source.write_text("label,item\n1,a\n0,b\n")
    with pytest.raises(DataError) as raised:
        convert(source, tmp_path / "day.parquet", format="criteo_tsv")
    assert "is not Criteo TSV: each of its first 3 lines is bad" in raised.value.message
    assert "--format csv" in raised.value.hint and "skip" not in raised.value.hint
    assert not (tmp_path / "day.parquet").exists()


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_the_hint_for_a_csv_that_is_read_as_criteo_works_as_it_stands(tmp_path: Path, delimiter: str) -> None:
    source = tmp_path / "a.csv"
    source.write_text("y,c\n1,2\n".replace(",", delimiter))
    with pytest.raises(DataError) as raised:
        convert(source, tmp_path / "a.parquet", format="criteo_tsv")
    options = shlex.split(raised.value.hint.partition("convert it with ")[2])
    assert run_command_line(["convert", str(source), str(tmp_path / "a.parquet"), *options]) == 0
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"y": [1], "c": [2]}


def test_the_format_follows_from_the_first_line(tmp_path: Path) -> None:
    for name, line, expected in (
        ("a.csv", "y,c", "csv"),
        ("a.tsv", "y\tc", "csv"),
        ("b.tsv", criteo_line(), "criteo_tsv"),
    ):
        (tmp_path / name).write_text(f"{line}\n")
        assert format_of(tmp_path / name) == expected


def test_true_and_false_become_booleans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a.csv", tmp_path / "a.parquet"
    source.write_text("y,c,told\ntrue,true,\nFalse,maybe,True\n,1,false\n")
    convert(source, target, format="csv", types={"told": "bool"})
    table = pq.read_table(target)
    assert table.schema.types == [pa.bool_(), pa.string(), pa.bool_()]
    assert table.to_pydict() == {"y": [True, False, None], "c": ["true", "maybe", "1"], "told": [None, True, False]}
    monkeypatch.setattr(convert_module, "BLOCK_BYTES", 12)
    with pytest.raises(DataError, match=r"line 3, column 'c': 'maybe' is not true or false"):
        convert(source, target, format="csv")


@pytest.mark.parametrize("lines", ["1,b\rc\n0,a\n", '1,"b\n0,"a\n', '1,"b\r\n0,"a\n'])
def test_a_line_that_is_not_one_row_is_named(tmp_path: Path, lines: str) -> None:
    source = tmp_path / "clicks.csv"
    source.write_bytes(f'clicked,item\n0,a\n0,"b"\n{lines}'.encode())
    with pytest.raises(DataError, match=r"clicks\.csv: line 4: a (carriage return|quoted field)"):
        convert(source, tmp_path / "clicks.parquet", format="csv")
