"""From whole lines of separated values to an Arrow table with one row for each line; bad rows are marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.errors import DataError

__all__ = ["FALSE", "TRUE", "BlockFormat", "are_booleans", "floats_of", "read_block", "without_missing"]

INTEGER = re.compile(r"-?[0-9]+")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
# For a missing number pandas, R and databases write one of these words, if they write one at all.
MISSING = ("NA", "N/A", "n/a", "<NA>", "#N/A", "NULL", "Null", "null", "None", r"\N")
NOT_A_NUMBER = ("NaN", "nan")  # a number with a fraction has this value; a whole number has not
CARRIAGE_RETURN = b"\r"
COMMA_HINT = '; for a decimal comma set data.csv.decimal = "," (or convert with --decimal ,)'
QUESTION_MARK = np.uint8(ord("?"))
LINE_FEED = np.uint8(ord("\n"))


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """How lines are cut into fields, and the types of the columns.

    names           all columns of the file, in file order
    types           column -> int64, float64, bool, string, list<int64> or list<string>; only these columns are read;
                    in a float64 column true and false, in any of the three usual cases, are 1 and 0
    delimiter       one character, between fields
    list_delimiter  one character, between the elements of a list
    quoted          whether fields may be quoted with '"'
    decimal         "." or ",": before the fraction of a number; the other one is no part of a number
    has_words       whether a number may be missing as one of MISSING; an empty field is missing in any case
    """

    names: tuple[str, ...]
    types: dict[str, pa.DataType]
    delimiter: str
    list_delimiter: str = "|"
    quoted: bool = True
    decimal: str = "."
    has_words: bool = True


def read_block(
    data: npt.NDArray[np.uint8], lines: int, block: BlockFormat, log: BadRowLog, locate: Callable[[int], str]
) -> pa.Table:
    """A table of `lines` rows, with nulls where a line has a wrong number of fields or a value has a wrong type.

    An empty field is null; a quoted empty field is an empty string in a column of text, and null in any other, as one
    of MISSING is. Whole numbers may have a fraction of zeros: pandas writes it where a number of the column is missing.
    Bad rows are added to `log`, with the place `locate(row)`. Raises DataError when a quoted field holds a line break,
    or a line a carriage return, because lines are not rows then.
    """
    scalar_types = {name: pa.string() if pa.types.is_list(kind) else kind for name, kind in block.types.items()}
    ragged: dict[int, tuple[int, int]] = {}
    if not _is_utf8(data):
        data = _ragged_lines_made_ascii(data, block)
    try:
        table = _parse(data, block, scalar_types, ragged)
        converted = True
    except pa.ArrowInvalid:
        ragged.clear()
        table = _parse(data, block, dict.fromkeys(scalar_types, pa.binary()), ragged)
        converted = False
    if table.num_rows + len(ragged) != lines:
        raise _line_break_error(data, block, locate)
    if ragged:
        table = _open_gaps(table, lines, ragged, log, locate)
    columns = []
    for name, kind in block.types.items():
        column = table.column(name)
        if not converted:
            column = _convert(column, scalar_types[name], name, block, log, locate)
        if pa.types.is_list(kind):
            if pa.types.is_integer(kind.value_type) and block.has_words:
                column = without_missing(column, MISSING + NOT_A_NUMBER)
            column = _split_lists(column, kind.value_type, block.list_delimiter, name, log, locate)
        columns.append(column)
    return pa.table(columns, names=list(block.types))


def _parse(
    data: npt.NDArray[np.uint8],
    block: BlockFormat,
    types: dict[str, pa.DataType],
    ragged: dict[int, tuple[int, int]],
) -> pa.Table:
    """Parses lines into columns. Lines with a wrong number of fields are left out of the table, and are added to
    `ragged`: row -> (actual, expected) number of fields."""

    def note(row: csv.InvalidRow) -> str:
        ragged[row.number - 1] = (row.actual_columns, row.expected_columns)
        return "skip"

    return csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        # One block, so that no row is cut and the row numbers are right.
        read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(block.names)),
        parse_options=csv.ParseOptions(
            delimiter=block.delimiter,
            quote_char='"' if block.quoted else False,
            newlines_in_values=False,
            ignore_empty_lines=False,
            invalid_row_handler=note,
        ),
        convert_options=csv.ConvertOptions(
            include_columns=list(types),
            column_types=types,
            null_values=[""],
            true_values=list(TRUE),
            false_values=list(FALSE),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=block.decimal,
        ),
    )


def _is_utf8(data: npt.NDArray[np.uint8]) -> bool:
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def _ragged_lines_made_ascii(data: npt.NDArray[np.uint8], block: BlockFormat) -> npt.NDArray[np.uint8]:
    """The data with question marks for the non-ASCII bytes of ragged lines; all other lines are unchanged.

    Arrow decodes a ragged line before it reports it, and fails where the line is not UTF-8. Ragged lines are left out
    of the table in any case, so their content does not matter.
    """
    is_high = data >= 0x80
    ragged: dict[int, tuple[int, int]] = {}
    _parse(np.where(is_high, QUESTION_MARK, data), block, dict.fromkeys(block.names[:1], pa.binary()), ragged)
    if not ragged:
        return data
    ends = data == LINE_FEED
    line_of_byte = np.cumsum(ends) - ends
    return np.where(is_high & np.isin(line_of_byte, list(ragged)), QUESTION_MARK, data)


def _open_gaps(
    table: pa.Table,
    lines: int,
    ragged: dict[int, tuple[int, int]],
    log: BadRowLog,
    locate: Callable[[int], str],
) -> pa.Table:
    """Inserts a row of nulls for each ragged line that was left out, so that row numbers equal line numbers again."""
    bad = np.zeros(lines, dtype=np.bool_)
    bad[list(ragged)] = True
    log.add(bad, lambda row: f"{locate(row)}: {ragged[row][0]} fields where {ragged[row][1]} are expected")
    source = np.cumsum(~bad) - 1
    return table.take(pa.array(source, mask=bad))


def _line_break_error(data: npt.NDArray[np.uint8], block: BlockFormat, locate: Callable[[int], str]) -> DataError:
    """The error of the first line that is not one row: a field that is not closed joins it to the next line, and a
    carriage return, which ends a row as a line feed does, cuts it."""
    begin = b"(?:^|" + re.escape(block.delimiter.encode()) + b")"  # other quotes are characters as any
    quoted_field = re.compile(begin + rb'"[^"]*(?:""[^"]*)*("|\Z)')
    where = locate(0)
    for row, line in enumerate(data.tobytes().split(b"\n")):
        text = line.removesuffix(CARRIAGE_RETURN)
        if CARRIAGE_RETURN in (quoted_field.sub(b"", text) if block.quoted else text):
            return DataError(
                f"{locate(row)}: a carriage return stands within the line, outside of quotes",
                hint="a carriage return may only stand before a line feed: write the file without it, or as Parquet",
            )
        if block.quoted and any(not field[1] for field in quoted_field.finditer(text)):
            where = locate(row)
            break
    return DataError(
        f"{where}: a quoted field is not closed before the end of its line",
        hint="line breaks inside of quoted fields are not supported: write the file without them, or as Parquet",
    )


def without_missing(texts: pa.ChunkedArray | pa.Array, words: Sequence[str] = MISSING) -> pa.ChunkedArray | pa.Array:
    """The texts, or bytes, with nulls for empty ones, which programs that quote all fields write for missing numbers,
    and for one of `words`."""
    is_word = pc.is_in(texts, value_set=pa.array(words, pa.string()).cast(texts.type))
    return pc.if_else(pc.or_(pc.equal(pc.binary_length(texts), 0), is_word), None, texts)


def _convert(
    column: pa.ChunkedArray,
    kind: pa.DataType,
    name: str,
    block: BlockFormat,
    log: BadRowLog,
    locate: Callable[[int], str],
) -> pa.ChunkedArray:
    """Converts bytes to values: all at once if that succeeds, as for the other columns of a block that has a bad value
    or a label of true and false; else one by one, which is slow."""
    if not pa.types.is_string(kind):
        words = MISSING + (NOT_A_NUMBER if pa.types.is_integer(kind) else ())
        column = without_missing(column, words if block.has_words else ())
    whole = _converted(column, kind, block.decimal)
    if whole is not None:
        return whole
    texts: list[bytes | None] = column.to_pylist()
    values: list[object] = []
    bad = np.zeros(len(texts), dtype=np.bool_)
    for row, text in enumerate(texts):
        value = None if text is None else _value(text, kind, block.decimal)
        bad[row] = text is not None and value is None
        values.append(value)

    def problem(row: int) -> str:
        text = texts[row] or b""
        hint = COMMA_HINT if _has_decimal_comma(text, kind, block) else ""
        return f"{locate(row)}, column {name!r}: {_shown(text)} is not {_in_words(kind)}{hint}"

    log.add(bad, problem)
    return pa.chunked_array([pa.array(values, type=kind)])


def _has_decimal_comma(text: bytes, kind: pa.DataType, block: BlockFormat) -> bool:
    """Whether a bad value is a number for the decimal comma, which the file may have: its fields are cut at another
    character."""
    if "," in (block.decimal, block.delimiter) or not pa.types.is_floating(kind):
        return False
    return b"," in text and _value(text, kind, ",") is not None


def _converted(column: pa.ChunkedArray, kind: pa.DataType, decimal: str) -> pa.ChunkedArray | None:
    """The values of the whole column; None when a value does not have the type."""
    try:
        texts = column.cast(pa.string())
        if (pa.types.is_floating(kind) or pa.types.is_boolean(kind)) and are_booleans(texts):
            is_true = pc.is_in(texts, value_set=pa.array(TRUE))
            return pc.if_else(pc.is_valid(texts), is_true, None).cast(kind)
        if pa.types.is_floating(kind):
            return floats_of(texts, decimal)
        if pa.types.is_integer(kind):
            return pc.replace_substring_regex(texts, rf"[{decimal}]0+$", "").cast(kind)
        return None if pa.types.is_boolean(kind) else texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def floats_of(texts: pa.ChunkedArray | pa.Array, decimal: str) -> pa.ChunkedArray | pa.Array:
    """The numbers that texts hold, float64; a null stays null. decimal: "." or ",". Raises pa.ArrowInvalid: one of the
    texts is no number."""
    if decimal == ",":
        if pc.any(pc.match_substring(texts, ".")).as_py():
            raise pa.ArrowInvalid("a number has a decimal point")
        texts = pc.replace_substring(texts, ",", ".")
    return texts.cast(pa.float64())


def are_booleans(texts: pa.ChunkedArray | pa.Array) -> bool:
    """Whether there are texts, and each is true or false, nulls aside."""
    known = texts.drop_null()
    return len(known) > 0 and bool(pc.all(pc.is_in(known, value_set=pa.array(TRUE + FALSE))).as_py())


def _value(text: bytes, kind: pa.DataType, decimal: str = ".") -> object | None:
    """The value of a field; None when it does not have the type."""
    try:
        characters = text.decode()
    except UnicodeDecodeError:
        return None
    if pa.types.is_string(kind):
        return characters
    characters = characters.strip()
    if pa.types.is_integer(kind):
        whole, _, fraction = characters.partition(decimal)
        number = int(whole) if INTEGER.fullmatch(whole) and not fraction.strip("0") else None
        return number if number is not None and -(2**63) <= number < 2**63 else None
    if characters in TRUE + FALSE:
        return characters in TRUE if pa.types.is_boolean(kind) else float(characters in TRUE)
    if pa.types.is_boolean(kind):
        return None
    if decimal == ",":  # a point is as bad as the underscore of Python's numbers
        characters = characters.replace(".", "_").replace(",", ".")
    try:
        return None if "_" in characters else float(characters)
    except ValueError:
        return None


def _shown(text: bytes | str | None) -> str:
    if isinstance(text, bytes):
        text = text.decode(errors="backslashreplace")
    return repr((text or "")[:40])


def _in_words(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "a 64-bit integer"
    if pa.types.is_boolean(kind):
        return "true or false"
    return "a number, true or false" if pa.types.is_floating(kind) else "UTF-8 text"


def _split_lists(
    column: pa.ChunkedArray,
    element: pa.DataType,
    delimiter: str,
    name: str,
    log: BadRowLog,
    locate: Callable[[int], str],
) -> pa.ChunkedArray:
    """Splits strings into lists. Empty elements are left out, so an empty field becomes an empty list."""
    whole = pc.fill_null(column.combine_chunks(), "")
    parts = pc.split_pattern(whole, delimiter)
    elements = parts.flatten()
    if pa.types.is_integer(element):
        elements = pc.utf8_trim_whitespace(elements)
    kept = pc.not_equal(elements, "").to_numpy(zero_copy_only=False)
    kept_before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(kept)))
    offsets = kept_before[parts.offsets.to_numpy()]
    elements = elements.filter(pa.array(kept))
    if pa.types.is_integer(element):
        try:
            elements = elements.cast(element)
        except pa.ArrowInvalid:
            elements = _element_integers(elements, offsets, name, log, locate)
    lists = pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), elements)
    return pa.chunked_array([lists])


def _element_integers(
    elements: pa.Array,
    offsets: npt.NDArray[np.int64],
    name: str,
    log: BadRowLog,
    locate: Callable[[int], str],
) -> pa.Array:
    texts: list[str] = elements.to_pylist()
    values = [_value(text.encode(), pa.int64()) for text in texts]
    wrong = np.flatnonzero(np.array([value is None for value in values]))
    rows = np.searchsorted(offsets, wrong, side="right") - 1
    first_wrong = dict(zip(reversed(rows.tolist()), reversed(wrong.tolist()), strict=True))
    bad = np.zeros(len(offsets) - 1, dtype=np.bool_)
    bad[rows] = True
    log.add(
        bad, lambda row: f"{locate(row)}, column {name!r}: element {_shown(texts[first_wrong[row]])} is not an integer"
    )
    return pa.array(values, type=pa.int64())
