"""CSV with a header line. The job file declares the types of categorical columns, because a text file has none."""

from __future__ import annotations

import csv as standard_csv
import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.decoded import DecodedUnit
from elastichost.datasets.files import real_delimiter
from elastichost.datasets.settings import ColumnType, DataSettings
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.tabular import decode_table
from elastichost.datasets.text.csv_block import BlockFormat, read_block
from elastichost.datasets.text.reader import TextDecoder
from elastichost.human_readable import did_you_mean
from elastichost.specs import KeyKind

__all__ = ["ARROW_TYPES", "CsvLines", "csv_decoder", "header_problem", "read_header"]

ARROW_TYPES: dict[ColumnType, pa.DataType] = {
    "int": pa.int64(),
    "string": pa.string(),
    "list[int]": pa.list_(pa.int64()),
    "list[string]": pa.list_(pa.string()),
}


def csv_decoder(
    settings: DataSettings,
    environ: Mapping[str, str],
    connections: SourceConnections | None = None,
    waiting: RequestPolicy = BEFORE_RUN,
) -> TextDecoder:
    return TextDecoder(settings, CsvLines(settings), environ, connections, waiting)


def read_header(line: bytes, delimiter: str) -> tuple[str, ...]:
    """The column names of a header line. Raises ValueError, of which `header_problem` makes a message, when it is not
    UTF-8 or no line of CSV."""
    text = line.decode("utf-8-sig").rstrip("\r\n")
    try:
        return tuple(next(standard_csv.reader([text], delimiter=delimiter), []))
    except standard_csv.Error as error:
        raise ValueError(str(error)) from error


def header_problem(error: ValueError) -> str:
    """What is wrong with a header line that `read_header` cannot read."""
    if isinstance(error, UnicodeDecodeError):
        return "the header is not UTF-8 text"
    return f"the header is no line of CSV ({error}): lines must end with a line feed, and names be short"


class CsvLines:
    """The `LineFormat` of CSV. Categorical columns without a declared type hold strings; labels, weights and dense
    values are numbers."""

    name = "csv"
    header_lines = 1

    def __init__(self, settings: DataSettings) -> None:
        self._settings = settings
        self._headers: dict[str, tuple[str, ...]] = {}

    def key_kinds(self) -> dict[str, KeyKind]:
        return {name: "int" if self._type_of(name) in ("int", "list[int]") else "string" for name in self._categorical}

    def multi_valued(self) -> tuple[str, ...]:
        return tuple(name for name in self._categorical if self._type_of(name).startswith("list"))

    def check_first_line(self, path: str, line: bytes) -> tuple[str, ...]:
        settings = self._settings
        try:
            header = read_header(line, settings.csv_delimiter)
        except ValueError as error:
            return (f"{path}: line 1: {header_problem(error)}",)
        other = real_delimiter(line, settings.csv_delimiter)
        if other is not None and not set(header) & set(settings.columns):
            shown = json.dumps(other)
            return (f"{path}: line 1: columns are separated by {shown}: set data.csv.delimiter = {shown}",)
        self._headers[path] = header
        optional = () if settings.labels_required else (*settings.labels, settings.weight)
        problems = [
            f"{path}: no column {name!r} in the header{did_you_mean(name, header)}"
            for name in settings.columns
            if name not in header and name not in optional
        ]
        numbers = {settings.weight, *settings.labels, *settings.dense}
        problems += [
            f"{path}: column {name!r} is named as a number (data.dense, data.label or data.weight) and as categorical "
            f'with type {self._type_of(name)!r}: name it only once, or set data.csv.types.{name} = "int"'
            for name in settings.categorical
            if name in numbers and self._type_of(name) != "int"
        ]
        problems += [
            f"{path}: column {name!r} is in the header {header.count(name)} times"
            for name in settings.columns
            if header.count(name) > 1
        ]
        return tuple(problems)

    def parse(self, path: str, data: npt.NDArray[np.uint8], lines: int, first_line: int, log: BadRowLog) -> DecodedUnit:
        header = self._headers[path]
        categorical = set(self._categorical)
        block = BlockFormat(
            names=header,
            types={
                name: ARROW_TYPES[self._type_of(name)] if name in categorical else pa.float64()
                for name in self._settings.columns
                if name in header
            },
            delimiter=self._settings.csv_delimiter,
            list_delimiter=self._settings.csv_list_delimiter,
            decimal=self._settings.csv_decimal,
        )

        def locate(row: int) -> str:
            return f"{path}: line {first_line + row}"

        table = read_block(data, lines, block, log, locate)
        return decode_table(table, self._settings, log, locate)

    @property
    def _categorical(self) -> tuple[str, ...]:
        return self._settings.categorical

    def _type_of(self, name: str) -> ColumnType:
        return self._settings.csv_types.get(name, "string")
