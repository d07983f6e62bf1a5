"""Turns columns into the inputs of an exported model, by the rules of `preprocess.json`.

It is copied into every export, and needs numpy, pyarrow and safetensors only. It is strict: a column has the kind of
the training data (numbers, integer ids, text ids, lists of them), or it is refused. An integer is never taken for text,
nor text for an integer: they are different keys. Nulls mean what they meant in training: a null number is `null_fill`,
a null id an empty bag.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from safetensors.numpy import load_file

__all__ = ["ColumnError", "IdTable", "Prepared", "Preprocessor", "column_kind", "kind_words", "read_about", "xxh64"]

Int64Array = npt.NDArray[np.int64]
SCHEMA = "elastichost/export/v2"
SHOWN_ITEMS = 5


class ColumnError(ValueError):
    """A column is missing, or does not fit the data that the model was trained on.

    row: number of the first wrong row, from 0; None: the whole column is wrong. expected: the kind of value that the
    model was trained on."""

    def __init__(
        self, column: str, problem: str, *, expected: str, row: int | None = None, value: object = None
    ) -> None:
        super().__init__(f"column {column}{'' if row is None else f', row {row}'}: {problem}")
        self.column, self.problem, self.expected, self.row, self.value = column, problem, expected, row, value


class Prepared(NamedTuple):
    """B samples for a model of F features.

    dense    float32 [B, numbers]
    rows     for each feature int64 [n]: rows of its table, sample after sample
    lengths  for each feature int64 [B]: how many of these rows belong to each sample
    """

    dense: npt.NDArray[np.float32]
    rows: tuple[Int64Array, ...]
    lengths: tuple[Int64Array, ...]

    @classmethod
    def join(cls, parts: Sequence[Prepared]) -> Prepared:
        """The samples of all parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        rows = tuple(np.concatenate(column) for column in zip(*(part.rows for part in parts), strict=True))
        lengths = tuple(np.concatenate(column) for column in zip(*(part.lengths for part in parts), strict=True))
        return cls(np.concatenate([part.dense for part in parts]), rows, lengths)


def read_about(directory: str | Path) -> dict[str, Any]:
    """The content of `preprocess.json`. Raises ValueError for an export of another version, OSError."""
    content: dict[str, Any] = json.loads((Path(directory) / "preprocess.json").read_text(encoding="utf-8"))
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{directory} has the format {content.get('schema')}, not {SCHEMA}: export the run again")
    return content


class Preprocessor:
    """The rules of one export. refuse_nulls: a null or NaN is refused instead of what it meant in training."""

    def __init__(self, directory: str | Path, *, refuse_nulls: bool = False) -> None:
        self.about = read_about(directory)
        self.dense: tuple[str, ...] = tuple(self.about["dense"])
        self.features: tuple[str, ...] = tuple(self.about["features"])
        self._refuse_nulls = refuse_nulls
        ids_file = Path(directory) / "ids.safetensors"
        ids = load_file(ids_file) if ids_file.is_file() else {}
        self.tables = {
            feature: IdTable(
                table["rows"],
                is_string=table["key_kind"] == "string",
                modulo=table["rule"] == "modulo",
                ids=ids[table["name"]] if table["rule"] == "dynamic" else None,
                keeps_places=feature in table["sequence_features"],
            )
            for table in self.about["tables"]
            for feature in table["features"]
        }
        lists = self.about["list_features"]
        self.lists: dict[str, bool | None] = {name: None if lists is None else name in lists for name in self.features}

    def expected(self, column: str) -> str:
        """The kind of a column in words, such as "an integer id"."""
        if column not in self.tables:
            return "a number"
        return kind_words("string" if self.tables[column].is_string else "int", self.lists[column])

    def prepare(self, table: pa.Table) -> Prepared:
        """The samples of `table`; further columns are ignored. Raises ColumnError (a ValueError): a column is missing,
        is there twice or has another kind than in training, a number is infinite, an id is out of range."""
        names = table.column_names  # pyarrow makes a new list each time
        for name in (*self.dense, *self.features):
            if name not in names:
                given = ", ".join(names) or "none"
                raise ColumnError(name, f"is missing; the columns are {given}", expected=self.expected(name))
            if names.count(name) > 1:
                raise ColumnError(name, f"is there {names.count(name)} times", expected=self.expected(name))
        dense = np.empty((table.num_rows, len(self.dense)), dtype=np.float32)
        for number, name in enumerate(self.dense):
            dense[:, number] = self._numbers(name, table.column(name))
        found = [self._rows(name, table.column(name)) for name in self.features]
        return Prepared(dense, tuple(rows for rows, _ in found), tuple(lengths for _, lengths in found))

    def _numbers(self, name: str, column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
        """The values of a dense column, transformed as in training: in float32, and nulls filled afterwards."""
        if column_kind(column.type) not in (("number", False), ("int", False), ("null", False)):
            raise self._wrong_kind(name, column)
        with np.errstate(over="ignore", invalid="ignore"):  # null becomes NaN
            values: npt.NDArray[np.float32] = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float32)
        if self.about["dense_transform"] == "log1p":
            values = np.log1p(np.maximum(values, 0))
        elif self.about["dense_transform"] == "signed_log1p":
            values = np.copysign(np.log1p(np.abs(values)), values)
        infinite, missing = np.isinf(values), np.isnan(values)
        if infinite.any():
            row = int(np.argmax(infinite))
            raise self._wrong_value(name, row, column[row].as_py(), "is infinite in float32")
        if self._refuse_nulls and missing.any():
            row = int(np.argmax(missing))
            raise self._wrong_value(name, row, column[row].as_py(), "is no number")
        values[missing] = self.about["null_fill"]
        return values

    def _rows(self, name: str, column: pa.ChunkedArray) -> tuple[Int64Array, Int64Array]:
        """(rows of the table, number of them in each sample) of a categorical column."""
        kind, is_list = column_kind(column.type)
        table, lists = self.tables[name], self.lists[name]
        wanted = "string" if table.is_string else "int"
        if kind not in (wanted, "null") or (kind != "null" and lists is not None and is_list != lists):
            raise self._wrong_kind(name, column)
        keys, sample = _keys_of_chunks(column)
        if self._refuse_nulls:
            lacking = np.bincount(sample, minlength=len(column)) < _lengths(column)
            if lacking.any():
                row = int(np.argmax(lacking))
                raise self._wrong_value(name, row, _shown(column[row]), "has no id")
        rows = table.rows_of(keys)
        outside = rows == IdTable.OUT_OF_RANGE
        if outside.any():
            at = int(np.argmax(outside))
            problem = f"is out of range: the table has rows 0 to {table.rows - 1}"
            raise self._wrong_value(name, int(sample[at]), int(keys[at]), problem)
        known = rows >= 0  # an id that was never trained is left out of its bag
        return rows[known], np.bincount(sample[known], minlength=len(column)).astype(np.int64)

    def _wrong_kind(self, name: str, column: pa.ChunkedArray) -> ColumnError:
        expected = self.expected(name)
        valid = np.flatnonzero(column.is_valid().to_numpy())
        row = int(valid[0]) if len(valid) else None
        value = None if row is None else _shown(column[row])
        problem = f"{column.type} is not {expected}, which the model was trained on"
        return ColumnError(name, problem, expected=expected, row=row, value=value)

    def _wrong_value(self, name: str, row: int, value: object, problem: str) -> ColumnError:
        return ColumnError(name, f"{value} {problem}", expected=self.expected(name), row=row, value=value)


def _shown(scalar: pa.Scalar, nesting: int = 2) -> object:
    """The value for a message; of a list its first items, down to lists in lists; the name of the type for what is
    neither a number nor text. A list of billions of nulls, or of one long word in a dictionary, takes few bytes in
    Arrow and GiBs as Python's objects."""
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(scalar.type):
        return _shown(scalar.value, nesting)
    kind, is_list = column_kind(scalar.type)
    if is_list and nesting:
        items = [_shown(item, nesting - 1) for item in scalar.values[:SHOWN_ITEMS]]
        return items if len(scalar.values) <= SHOWN_ITEMS else [*items, "..."]
    if is_list or kind == "other":
        return str(scalar.type)
    return scalar.as_py()


def kind_words(kind: str, is_list: bool | None) -> str:
    """ "an integer id", "a list of text ids" and so on. is_list None: one id and a list are both accepted."""
    one, many = ("an integer id", "integer ids") if kind == "int" else ("a text id", "text ids")
    if is_list is None:
        return f"{one} or a list of {many}"
    return f"a list of {many}" if is_list else one


def column_kind(column_type: pa.DataType) -> tuple[str, bool]:
    """(kind of the values, whether the column holds lists of them). The kinds: int, string, number (which is no id),
    null (no value at all), other. A list in a list is other."""
    types = pa.types
    if types.is_list(column_type) or types.is_large_list(column_type) or types.is_fixed_size_list(column_type):
        kind, is_list = column_kind(column_type.value_type)
        return ("other" if is_list else kind), True
    if types.is_dictionary(column_type):
        return column_kind(column_type.value_type)
    if types.is_integer(column_type) or types.is_boolean(column_type):
        return "int", False
    if types.is_floating(column_type) or types.is_decimal(column_type):
        return "number", False
    if types.is_null(column_type):
        return "null", False
    text = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return ("string" if column_type in text else "other"), False


class IdTable:
    """Maps the keys of one feature to rows of its table. `ids`: int64, the key of each row of a dynamic table.
    `keeps_places`: ids without a row get the last row of the table, which is zeros."""

    UNKNOWN, OUT_OF_RANGE = -1, -2

    def __init__(self, rows: int, *, is_string: bool, modulo: bool, ids: Int64Array | None, keeps_places: bool) -> None:
        self.rows, self.is_string, self.modulo = rows, is_string, modulo
        self.row_of_unknown = rows - 1 if keeps_places else self.UNKNOWN
        self.order = None if ids is None else np.argsort(ids)
        self.sorted_ids = None if ids is None or self.order is None else ids[self.order]

    def rows_of(self, keys: Int64Array) -> Int64Array:
        """int64 [len(keys)]: the row of each key, UNKNOWN (dynamic tables), or OUT_OF_RANGE (tables of fixed size)."""
        if self.order is not None and self.sorted_ids is not None:
            if not len(self.order):
                return np.full(len(keys), self.row_of_unknown, dtype=np.int64)
            place = np.minimum(np.searchsorted(self.sorted_ids, keys), len(self.order) - 1)
            return np.where(self.sorted_ids[place] == keys, self.order[place], self.row_of_unknown)
        if self.is_string:
            return (keys.view(np.uint64) % np.uint64(self.rows)).astype(np.int64)
        if self.modulo:
            return keys % self.rows
        return np.where((keys >= 0) & (keys < self.rows), keys, self.OUT_OF_RANGE)


def _lengths(column: pa.ChunkedArray) -> Int64Array:
    """int64 [len(column)]: the number of items of each row; of a null it is 1, because an item is missing."""
    if not column_kind(column.type)[1]:
        return np.ones(len(column), dtype=np.int64)
    lengths: list[Int64Array] = [np.empty(0, dtype=np.int64)]
    lengths += [pc.list_value_length(chunk).fill_null(1).to_numpy().astype(np.int64) for chunk in column.chunks]
    return np.concatenate(lengths)


def _keys_of_chunks(column: pa.ChunkedArray) -> tuple[Int64Array, Int64Array]:
    """As `_keys`, of a whole column. The chunks are not joined: each may have a dictionary of its own."""
    keys, samples = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    first = 0
    for chunk in column.chunks:
        found, sample = _keys(chunk)
        keys.append(found)
        samples.append(sample + first)
        first += len(chunk)
    return np.concatenate(keys), np.concatenate(samples)


def _keys(column: pa.Array) -> tuple[Int64Array, Int64Array]:
    """(keys, sample of each key), both int64 [n], of a column of ints, strings or lists of them. Nulls have no key."""
    sample = np.arange(len(column))
    if column_kind(column.type)[0] == "null":
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        sample = np.repeat(sample, column.value_lengths().fill_null(0).to_numpy())
        column = column.flatten()
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())  # arrow has no drop_null of views
    sample = sample[column.is_valid().to_numpy(zero_copy_only=False)]
    column = column.drop_null()
    if pa.types.is_dictionary(column.type):  # a word may be long and many rows may hold it: it is never copied
        keys, of_word = _keys(column.dictionary)
        key_of_word = np.zeros(len(column.dictionary), dtype=np.int64)
        key_of_word[of_word] = keys
        has_key = np.zeros(len(column.dictionary), dtype=bool)
        has_key[of_word] = True
        indices = column.indices.to_numpy(zero_copy_only=False)
        return key_of_word[indices[has_key[indices]]], sample[has_key[indices]]
    if column_kind(column.type)[0] == "int":
        # never through floating point, which rounds; every pattern of 64 bits is a key
        whole = column.to_numpy(zero_copy_only=False)
        return (whole.view(np.int64) if whole.dtype == np.uint64 else whole.astype(np.int64)), sample
    words = column.dictionary_encode()
    hashes = np.array([xxh64(word) for word in words.dictionary.to_pylist()], dtype=np.uint64).view(np.int64)
    return hashes[words.indices.to_numpy(zero_copy_only=False)], sample


def xxh64(text: str | bytes) -> int:
    """XXH64 (seed 0) of UTF-8 bytes. The `xxhash` package is used when it is installed, because it is much faster."""
    data = text.encode() if isinstance(text, str) else text
    try:
        import xxhash
    except ImportError:
        return _xxh64(data)
    return int(xxhash.xxh64_intdigest(data))


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5, _M = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, (1 << 64) - 1


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _M


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _M, 31) * _P1 & _M


def _xxh64(data: bytes) -> int:
    at, total = 0, _P5
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _M, _P2, 0, -_P1 & _M]
        for at in range(0, len(data) - 31, 32):
            words = (int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4))
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        at, total = at + 32, sum(map(_rotate, lanes, (1, 7, 12, 18))) & _M
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _M
    total = (total + len(data)) & _M
    while len(data) - at >= 8:
        word = int.from_bytes(data[at : at + 8], "little")
        at, total = at + 8, (_rotate(total ^ _round(0, word), 27) * _P1 + _P4) & _M
    if len(data) - at >= 4:
        word = int.from_bytes(data[at : at + 4], "little")
        at, total = at + 4, (_rotate(total ^ (word * _P1 & _M), 23) * _P2 + _P3) & _M
    for byte in data[at:]:
        total = _rotate(total ^ (byte * _P5 & _M), 11) * _P1 & _M
    total = (total ^ (total >> 33)) * _P2 & _M
    total = (total ^ (total >> 29)) * _P3 & _M
    return total ^ (total >> 32)
