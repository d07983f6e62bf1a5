"""Criteo TSV and CSV: the same batches as Parquet for the same rows, bad lines with their numbers, the line index."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from elastichost.datasets.files import stamp
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE
from elastichost.datasets.text import line_index as text_index
from elastichost.datasets.text.line_index import TextIndex, index_text_file
from elastichost.errors import DataError
from tests.effort import examples

from .conftest import (
    all_batches,
    assert_same_samples,
    criteo_line,
    criteo_settings,
    hash_string,
    ids_of,
    reader_of,
    settings,
    write_parquet,
)

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)
ELEMENT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="|"), min_size=1, max_size=5)
ROW = st.tuples(
    st.integers(0, 1),
    st.one_of(st.none(), FLOAT32),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), TEXT),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.lists(ELEMENT, max_size=3),
)
NAMES = ("y", "x", "number", "word", "numbers", "words")
COLUMNS: dict[str, Any] = {
    "categorical": ("number", "word", "numbers", "words"),
    "csv_types": {"number": "int", "numbers": "list[int]", "words": "list[string]"},
}


def as_text(value: object) -> str:
    if isinstance(value, list):
        return "|".join(str(one) for one in value)
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def write_csv(path: Path, rows: list[tuple[Any, ...]], line_end: str) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator=line_end)
        writer.writerow(NAMES)
        writer.writerows([[as_text(value) for value in row] for row in rows])
    return path


@hypothesis_settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(ROW, min_size=1, max_size=12), unit_lines=st.integers(1, 6), line_end=st.sampled_from(["\n", "\r\n"])
)
def test_csv_gives_the_same_batches_as_parquet(
    tmp_path: Path, rows: list[tuple[Any, ...]], unit_lines: int, line_end: str
) -> None:
    types = (pa.int64(), pa.float32(), pa.int64(), pa.string(), pa.list_(pa.int64()), pa.list_(pa.string()))
    table = {
        name: pa.array(column, kind) for name, column, kind in zip(NAMES, zip(*rows, strict=True), types, strict=True)
    }
    parquet = reader_of(settings(write_parquet(tmp_path / "a.parquet", table), **COLUMNS))
    text = write_csv(tmp_path / "a.csv", rows, line_end)
    other = reader_of(settings(text, "csv", text_unit_lines=unit_lines, **COLUMNS))
    assert_same_samples(all_batches(parquet), all_batches(other), 4)
    assert other.describe().key_kinds == parquet.describe().key_kinds
    assert other.describe().multi_valued == parquet.describe().multi_valued
    assert other.describe().samples == len(rows)


@hypothesis_settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    labels=st.lists(st.integers(0, 1), min_size=1, max_size=12),
    data=st.data(),
    unit_lines=st.integers(1, 6),
    line_end=st.sampled_from(["\n", "\r\n"]),
    last_break=st.booleans(),
)
def test_criteo_gives_the_same_batches_as_parquet(
    tmp_path: Path, labels: list[int], data: st.DataObject, unit_lines: int, line_end: str, last_break: bool
) -> None:
    rows = len(labels)
    integer = st.one_of(st.none(), st.integers(-(10**9), 10**17))
    word = st.one_of(st.none(), st.text("0123456789abcdefü", min_size=1, max_size=40))
    table: dict[str, Any] = {"label": labels}
    for name in CRITEO_DENSE:
        table[name] = pa.array(data.draw(st.lists(integer, min_size=rows, max_size=rows)), pa.int64())
    for name in CRITEO_CATEGORICAL:
        table[name] = pa.array(data.draw(st.lists(word, min_size=rows, max_size=rows)), pa.string())
    names = ("label", *CRITEO_DENSE, *CRITEO_CATEGORICAL)
    parquet = criteo_settings(write_parquet(tmp_path / "a.parquet", table), format="parquet")
    lines = ["\t".join(as_text(pa.array(table[name])[row].as_py()) for name in names) for row in range(rows)]
    text = tmp_path / "a.tsv"
    text.write_bytes((line_end.join(lines) + (line_end if last_break else "")).encode())
    reader = reader_of(criteo_settings(text, text_unit_lines=unit_lines))
    assert_same_samples(all_batches(reader_of(parquet)), all_batches(reader), 26)


def test_a_subset_of_criteo_columns_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\t".join(["1", *map(str, range(1, 14)), *(f"c{n}" for n in range(1, 27))]) + "\n")
    (batch,) = all_batches(reader_of(criteo_settings(path, dense=("I3", "I1"), categorical=("C26", "C2"))))
    assert batch.dense.tolist() == [[3, 1]]
    assert batch.keys.tolist() == [hash_string("c26"), hash_string("c2")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (criteo_line(fields=39), "line 3: 39 fields where criteo_tsv has 40"),
        (criteo_line(fields=42), "line 3: 42 fields where criteo_tsv has 40"),
        ("", "line 3: 1 fields where criteo_tsv has 40"),
        (criteo_line(label="2"), "line 3, column 'label': label is '2', not 0 or 1"),
        (criteo_line(label=""), "line 3, column 'label': label is empty, not 0 or 1"),
        (criteo_line(integers="1.5"), "line 3, column 'I1': '1.5' is not an integer"),
        (criteo_line(integers="-"), "line 3, column 'I1': '-' is not an integer"),
        (criteo_line(categories="b\udcffd"), "line 3: not UTF-8 text"),
        (criteo_line(integers="x", categories="ü"), "line 3, column 'I1': 'x' is not an integer"),
    ],
)
def test_bad_criteo_lines(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.tsv"
    good = criteo_line(categories="groß")
    path.write_bytes("\n".join([good, good, line, good]).encode(errors="surrogateescape"))
    with pytest.raises(DataError) as raised:
        all_batches(reader_of(criteo_settings(path)))
    assert f"{path}: {message}" in raised.value.message
    batches = all_batches(reader_of(criteo_settings(path, skip_bad_rows=True)))
    assert (sum(batch.size for batch in batches), sum(batch.skipped for batch in batches)) == (3, 1)
    assert set(ids_of(batches, 26)[0][2]) == {hash_string("groß")}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,1", "line 4: 2 fields where 6 are expected"),
        ("0,1,2,a,1,b,c", "line 4: 7 fields where 6 are expected"),
        ("2,1,2,a,1,b", "line 4, column 'y': label is 2.0, not 0 or 1"),
        (",1,2,a,1,b", "line 4, column 'y': label is null, not 0 or 1"),
        ("no,1,2,a,1,b", "line 4, column 'y': 'no' is not a number, true or false"),
        ("\udcff,1", "line 4: 2 fields where 6 are expected"),
        ("0,1,2.5,a,1,b", "line 4, column 'number': '2.5' is not a 64-bit integer"),
        (f"0,1,{2**63},a,1,b", f"line 4, column 'number': '{2**63}' is not a 64-bit integer"),
        ("0,1,2,\udcff,1,b", "line 4, column 'word': '\\\\xff' is not UTF-8 text"),
        ("0,1,2,a,1|x,b", "line 4, column 'numbers': element 'x' is not an integer"),
        ("0,1e39,2,a,1,b", "line 4, column 'x': value is infinite in float32"),
        ("", "line 4, column 'y': label is null, not 0 or 1"),
    ],
)
def test_bad_csv_lines(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.csv"
    good = ["1,0.5,7,a,1|2,b", "0,,,,,"]
    path.write_bytes("\n".join([",".join(NAMES), *good, line, *good, ""]).encode(errors="surrogateescape"))
    with pytest.raises(DataError) as raised:
        all_batches(reader_of(settings(path, "csv", **COLUMNS)))
    assert f"{path}: {message}" in raised.value.message
    batches = all_batches(reader_of(settings(path, "csv", skip_bad_rows=True, **COLUMNS)))
    assert (sum(batch.size for batch in batches), sum(batch.skipped for batch in batches)) == (4, 1)
    assert ids_of(batches, 4)[0] == [[7], [], [7], []]
    assert ids_of(batches, 4)[2] == [[1, 2], [], [1, 2], []]


def test_a_line_break_inside_of_quotes_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('y,x,c\n0,1,a\n1,2,"b\nc"\n0,1,d\n')
    with pytest.raises(DataError) as raised:
        all_batches(reader_of(settings(path, "csv", skip_bad_rows=True)))
    assert f"{path}: line 3: a quoted field is not closed" in raised.value.message
    assert "not supported" in raised.value.hint


def test_a_quote_within_a_field_is_not_taken_for_a_line_break_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('y,x,c\n0,1,5" disk\n1,2,"b\nc"\n0,1,d\n')
    with pytest.raises(DataError, match="line 3: a quoted field is not closed"):
        all_batches(reader_of(settings(path, "csv")))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("line", ["0,1,d\rd", "0,1,d\r\r", '0,1\r,"d"', '\r0,1,"d\re"'])
def test_a_carriage_return_within_a_line_is_refused_and_named(tmp_path: Path, line: str, line_end: str) -> None:
    """Where it is quoted, it is a character as any other."""
    path = tmp_path / "a.csv"
    path.write_bytes(line_end.join(["y,x,c", '0,1,"a\rb"', '1,2,"b"" ,"', line, "0,1,e", ""]).encode())
    with pytest.raises(DataError) as raised:
        all_batches(reader_of(settings(path, "csv", skip_bad_rows=True)))
    assert f"{path}: line 4: a carriage return" in raised.value.message
    assert "line feed" in raised.value.hint


def test_quotes_delimiters_and_the_difference_of_null_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffy;x;c\n0;1;"a;""b"""\n1;2;\n0;3;""\n0;4;NA\n'.encode())
    batches = all_batches(reader_of(settings(path, "csv", csv_delimiter=";")))
    assert ids_of(batches, 1) == [[[hash_string('a;"b"')], [], [hash_string("")], [hash_string("NA")]]]


def test_a_quoted_empty_field_of_a_number_is_missing(tmp_path: Path) -> None:
    """As programs write it that quote all fields."""
    path = tmp_path / "a.csv"
    path.write_text('"y","x","c","w"\n"1","","7","1"\n"0","2","","3"\n')
    found = settings(path, "csv", weight="w", null_fill=9.0, csv_types={"c": "int"})
    (batch,) = all_batches(reader_of(found))
    assert batch.dense[:, 0].tolist() == [9, 2]
    assert batch.weights is not None and batch.weights.tolist() == [1, 3]
    path.write_text(path.read_text().replace('""', ""))
    (unquoted,) = all_batches(reader_of(found))
    assert ids_of([batch], 1) == ids_of([unquoted], 1)


@pytest.mark.parametrize("missing", ["NA", "N/A", "NULL", "null", "None", "<NA>", r"\N"])
def test_a_number_may_be_missing_as_a_word(tmp_path: Path, missing: str) -> None:
    """As R, pandas and databases write it. In text it is a word as any other."""
    path = tmp_path / "a.csv"
    path.write_text(f"y,x,c,w,d,l\n1,{missing},7,1,{missing},3|4\n0,2,{missing},3,DE,{missing}\n")
    types = {"c": "int", "d": "string", "l": "list[int]"}
    found = settings(path, "csv", categorical=("c", "d", "l"), weight="w", null_fill=9.0, csv_types=types)
    (batch,) = all_batches(reader_of(found))
    assert batch.dense[:, 0].tolist() == [9, 2]
    assert batch.lengths.reshape(3, 2).tolist() == [[1, 0], [1, 1], [2, 0]]
    assert len(set(batch.keys[1:3].tolist())) == 2, "a word of text has an id"


def test_whole_numbers_may_have_a_fraction_of_zeros(tmp_path: Path) -> None:
    """As pandas writes a column of whole numbers of which one is missing."""
    path = tmp_path / "a.csv"
    path.write_text("y,x,c\n1,0.5,17.0\n0,2,\n1,3,18.00\n0,1,NaN\n")
    (batch,) = all_batches(reader_of(settings(path, "csv", csv_types={"c": "int"})))
    assert batch.keys.tolist() == [17, 18]
    assert batch.lengths.tolist() == [1, 0, 1, 0]
    path.write_text("y,x,c\n1,0.5,17.5\n")
    with pytest.raises(DataError, match=r"'17\.5' is not a 64-bit integer"):
        all_batches(reader_of(settings(path, "csv", csv_types={"c": "int"})))


def test_csv_header_problems(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y,x,x,clik\n0,1,1,a\n")
    with pytest.raises(DataError) as raised:
        reader_of(settings(path, "csv", categorical=("click",))).describe()
    assert "no column 'click' in the header; did you mean \"clik\"?" in raised.value.message
    assert "column 'x' is in the header 2 times" in raised.value.message


@pytest.mark.parametrize(("delimiter", "shown"), [(";", '";"'), ("\t", r'"\t"')])
def test_a_header_with_another_delimiter_names_the_setting(tmp_path: Path, delimiter: str, shown: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y,x,c\n0,1,a\n".replace(",", delimiter))
    with pytest.raises(DataError) as raised:
        reader_of(settings(path, "csv")).describe()
    expected = f"{path}: line 1: columns are separated by {shown}: set data.csv.delimiter = {shown}"
    assert raised.value.message == expected


def test_a_parquet_file_is_refused_as_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": [1]}), tmp_path / "a.csv")
    with pytest.raises(DataError, match='is a Parquet file; set data.format = "parquet"'):
        reader_of(settings(tmp_path / "a.csv", "csv")).describe()


def test_gzip_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "day_0.gz"
    path.write_bytes(gzip.compress(criteo_line().encode()))
    with pytest.raises(DataError, match=r"elastichost convert .*day_0\.gz .*day_0\.parquet --format criteo_tsv"):
        reader_of(criteo_settings(path)).describe()


def test_the_command_for_compressed_csv_keeps_the_declared_types(tmp_path: Path) -> None:
    path = tmp_path / "my clicks.csv.gz"
    path.write_bytes(gzip.compress(b"y,x,number,word,numbers,words\n0,1,2,a,1,b\n"))
    with pytest.raises(DataError) as raised:
        reader_of(settings(path, "csv", **COLUMNS)).describe()
    assert f"convert '{path}'" in raised.value.message
    assert "--format csv --type number=int --type 'numbers=list[int]'" in raised.value.message


@pytest.mark.parametrize("content", ["", "y,x,c\n", "y,x,c\n\n\n"])
def test_csv_without_rows(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=r"has no rows|is empty"):
        reader_of(settings(path, "csv")).describe()


def test_unlabelled_criteo_lines_are_read_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\n".join([criteo_line()[2:]] * 3))
    (batch,) = all_batches(reader_of(criteo_settings(path, labels_required=False)))
    assert np.isnan(batch.labels).all()
    assert batch.dense.tolist() == [[1.0] * 13] * 3


def test_limit_rows_cuts_text_units(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y,x,c\n" + "".join(f"0,{row},a\n" for row in range(10)))
    reader = reader_of(settings(path, "csv", text_unit_lines=4, limit_rows=6))
    assert [unit.samples for unit in reader.describe().units] == [4, 2]
    assert [batch.dense[:, 0].tolist() for batch in all_batches(reader)] == [[0, 1, 2, 3], [4, 5]]


@hypothesis_settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(st.binary(max_size=600).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), max_size=30),
    unit_lines=st.integers(1, 7),
    header_lines=st.integers(0, 1),
    end=st.sampled_from([b"", b"\n", b"\n\n\r\n"]),
)
def test_the_line_index_has_the_offsets_of_lines(
    tmp_path: Path, lines: list[bytes], unit_lines: int, header_lines: int, end: bytes
) -> None:
    path = tmp_path / "a.txt"
    content = b"\n".join([b"header"] * header_lines + lines) + end
    path.write_bytes(content)
    if not content:
        return
    index, warning = index_text_file(
        stamp(str(path)), unit_lines=unit_lines, header_lines=header_lines, environ=os.environ
    )
    assert warning is None
    while lines and not lines[-1]:
        lines = lines[:-1]
    assert index.lines == len(lines)
    found: list[bytes] = []
    for group in range(len(index.starts)):
        start, stop = index.byte_range(group)
        part = content[start:stop].removesuffix(b"\n").split(b"\n")
        assert len(part) == index.lines_of(group)
        found += part
    assert found == lines


def test_the_line_index_is_cached_until_the_file_changes(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\n".join([criteo_line()] * 3))
    assert reader_of(criteo_settings(path)).describe().samples == 3
    (cached,) = (own_cache / "lines").iterdir()
    index = msgspec.json.decode(cached.read_bytes(), type=TextIndex)
    with monkeypatch.context() as patch:
        patch.setattr(text_index, "_scan", lambda *_: pytest.fail("scanned a file whose index is cached"))
        assert reader_of(criteo_settings(path)).describe().samples == 3
    path.write_text("\n".join([criteo_line()] * 4))
    assert reader_of(criteo_settings(path)).describe().samples == 4
    assert msgspec.json.decode(cached.read_bytes(), type=TextIndex) != index
    for damaged in (b"garbage", cached.read_bytes().replace(b"a.tsv", b"\xff.tsv")):
        cached.write_bytes(damaged)
        assert reader_of(criteo_settings(path)).describe().samples == 4


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ELASTICHOST_CACHE", str(tmp_path / "file"))
    path = tmp_path / "a.tsv"
    path.write_text(criteo_line())
    (warning,) = reader_of(criteo_settings(path)).describe().warnings
    assert "ELASTICHOST_CACHE" in warning


def test_a_string_column_cannot_also_be_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,c\n1,u185\n")
    with pytest.raises(DataError) as raised:
        reader_of(settings(tmp_path / "a.csv", "csv", dense=("c",))).describe()
    assert "column 'c' is named as a number (data.dense, data.label or data.weight) and as categorical" in str(
        raised.value
    )


def test_an_integer_column_may_also_be_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,c\n1,185\n")
    found = reader_of(settings(tmp_path / "a.csv", "csv", dense=("c",), csv_types={"c": "int"}))
    [batch] = all_batches(found)
    assert (batch.keys.tolist(), batch.dense.tolist()) == ([185], [[185.0]])


@pytest.mark.parametrize("words", [("true", "false"), ("True", "False"), ("TRUE", "FALSE")])
def test_true_and_false_are_labels_numbers_and_weights(tmp_path: Path, words: tuple[str, str]) -> None:
    """As the booleans of Parquet are; pandas and pyarrow write them in different cases."""
    path = tmp_path / "a.csv"
    yes, no = words
    path.write_text(f"y,x,c,w\n{yes},{no},true,1.5\n{no},,7,{yes}\n{yes},{yes},x,2\n")
    (batch,) = all_batches(reader_of(settings(path, "csv", weight="w", null_fill=9.0)))
    assert batch.labels[:, 0].tolist() == [1, 0, 1]
    assert batch.dense[:, 0].tolist() == [0, 9, 1]
    assert batch.weights is not None and batch.weights.tolist() == [1.5, 1, 2]
    assert ids_of([batch], 1)[0] == [[hash_string("true")], [hash_string("7")], [hash_string("x")]]


def test_only_true_and_false_are_such_words(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y,x,c\ntrue,1,a\nyes,1,b\n1,1,c\n")
    with pytest.raises(DataError, match=r"line 3, column 'y': 'yes' is not a number, true or false"):
        all_batches(reader_of(settings(path, "csv")))
    (batch,) = all_batches(reader_of(settings(path, "csv", skip_bad_rows=True)))
    assert batch.labels[:, 0].tolist() == [1, 1], "words and digits in one column"
