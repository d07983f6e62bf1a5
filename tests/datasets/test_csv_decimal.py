"""Numbers of CSV files with a decimal comma, or with a point: which are numbers, whatever else their block holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.preflight import check_data
from elastichost.datasets.text.csv_block import BlockFormat, read_block
from elastichost.errors import DataError
from tests.effort import examples

from .conftest import all_batches, hash_string, ids_of, load, reader_of, settings

TOLD = 'set data.csv.decimal = ","'


def test_numbers_with_a_decimal_comma(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('y;x;c;w\n1;1541,87;1,5;2\n0;-,25;b;"0,5"\n1,0;7;c;1\n')
    (batch,) = all_batches(reader_of(settings(path, "csv", weight="w", csv_delimiter=";", csv_decimal=",")))
    assert batch.dense[:, 0].tolist() == pytest.approx([1541.87, -0.25, 7])
    assert batch.labels[:, 0].tolist() == [1, 0, 1]
    assert batch.weights is not None and batch.weights.tolist() == [2, 0.5, 1]
    assert ids_of([batch], 1)[0] == [[hash_string("1,5")], [hash_string("b")], [hash_string("c")]]


@pytest.mark.parametrize(
    ("decimal", "value", "is_told"),
    [
        (".", "1541,87", True),
        (".", "1.541,87", False),
        (".", "1,541,870", False),
        (".", "a,b", False),
        (",", "1541.87", False),
        (",", "1,541,87", False),
        (",", "1.541,87", False),
    ],
)
def test_a_number_with_the_other_decimal_character_is_bad(
    tmp_path: Path, decimal: str, value: str, is_told: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"y;x;c\n1;1;a\n1;{value};b\n")
    with pytest.raises(DataError, match=rf"line 3, column 'x': '{value}' is not a number, true or false") as error:
        all_batches(reader_of(settings(path, "csv", csv_delimiter=";", csv_decimal=decimal)))
    assert (TOLD in error.value.message) is is_told


def test_a_comma_that_cuts_fields_is_not_told_to_be_the_decimal_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('y,x,c\n1,"1541,87",a\n')
    with pytest.raises(DataError, match="'1541,87' is not a number") as error:
        all_batches(reader_of(settings(path, "csv")))
    assert TOLD not in str(error.value)


def test_the_check_before_a_run_tells_the_setting(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y;x;c\n1;1541,87;a\n0;2,5;b\n")
    job = 'format = "csv"\ntrain = ["a.csv"]\nlabel = "y"\ndense = ["x"]\ncategorical = ["c"]\ncsv.delimiter = ";"\n'
    with pytest.raises(DataError) as error:
        check_data(load(tmp_path, job))
    assert f"a.csv: line 2, column 'x': '1541,87' is not a number, true or false; for a decimal comma {TOLD}" in str(
        error.value
    )
    assert check_data(load(tmp_path, job + 'csv.decimal = ","')).train.samples == 2


FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr)
SHAPES = ["1.", "1,", ".5", ",5", "1,5", "1.5", "7", "-0,25", "1,2,3", "1.2.3", "1.234,5", "1,234.5", "1e3", "1,5e-05"]
ODD = [" 1,5", "1.5 ", "+1,5", "1_0", "1,5_0", ",", ".", "-", "1.e2", "inf", "nan,0"]
NUMBERS = st.one_of(FLOATS, FLOATS.map(lambda text: text.replace(".", ",")), st.sampled_from(SHAPES + ODD))


@pytest.mark.parametrize("decimal", [".", ","])
@given(values=st.lists(NUMBERS, min_size=1, max_size=5))
@example(values=SHAPES)
@example(values=ODD)
@hypothesis_settings(max_examples=examples(40), deadline=None)
def test_a_number_is_read_alike_whatever_else_its_block_holds(decimal: str, values: list[str]) -> None:
    """Arrow converts a block of good rows; where one is bad, it converts the other columns as wholes, and the values of
    the column of the bad one are read one by one."""
    block = BlockFormat(("x", "y"), {"x": pa.float64(), "y": pa.float64()}, ";", decimal=decimal)

    def first(*lines: str) -> float | None:
        data = np.frombuffer("".join(f"{line}\n" for line in lines).encode(), np.uint8)
        table = read_block(data, len(lines), block, BadRowLog(len(lines)), str)
        found: float | None = table.column("x")[0].as_py()
        return found

    for value in values:
        alone = first(f"{value};1")
        assert first(f"{value};bad") == alone, value
        assert first(f"{value};1", "bad;1") == alone, value
        assert first(f"{value};true", "true;7") == alone, value


@pytest.mark.parametrize("decimal", [".", ","])
@given(number=st.floats(allow_nan=False, allow_infinity=False))
@hypothesis_settings(max_examples=examples(40), deadline=None)
def test_a_number_is_the_one_that_was_written(decimal: str, number: float) -> None:
    text = repr(number).replace(".", decimal)
    block = BlockFormat(("x",), {"x": pa.float64()}, ";", decimal=decimal)
    for lines in ([text], [text, "bad"]):
        data = np.frombuffer("".join(f"{line}\n" for line in lines).encode(), np.uint8)
        table = read_block(data, len(lines), block, BadRowLog(len(lines)), str)
        assert table.column("x")[0].as_py() == number
