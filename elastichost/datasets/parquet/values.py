"""Finds bad values before a job starts. Only row groups whose statistics allow a bad value are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elastichost.datasets.api import Unit
from elastichost.datasets.arrow_columns import float_values, id_column
from elastichost.datasets.id_ranges import first_id_outside, id_problem, ranged_tables
from elastichost.datasets.parquet.schema import ParquetFacts, opened_parquet, row_place
from elastichost.datasets.reader import ValueFindings
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.tabular import bad_labels
from elastichost.specs import TableSpec

__all__ = ["check_parquet_values"]

# Reading one column of 200 row groups takes about a second.
MAX_SCANNED_GROUPS = 200


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule for the values of a column.

    low, high   the allowed range, which is compared with the statistics
    nulls_bad   whether a null breaks the rule
    find        (place of a row, values) -> the message for the first bad value, or None
    """

    column: str
    low: float
    high: float
    nulls_bad: bool
    find: Callable[[Callable[[int], str], pa.ChunkedArray], str | None]


def check_parquet_values(
    settings: DataSettings, facts: Sequence[ParquetFacts], units: Sequence[Unit], tables: Sequence[TableSpec]
) -> ValueFindings:
    """Checks labels, weights and the ids of fixed tables. Reports the first bad value for each file and column."""
    scanner = _Scanner(facts, units)
    labels = [_label_rule(name) for name in settings.labels]
    weights = [_weight_rule(settings.weight)] if settings.weight else []
    ranged = ranged_tables(tables)
    ids = [_id_rule(name, ranged[name]) for name in settings.categorical if name in ranged]
    return ValueFindings(
        bad_rows=tuple(finding for rule in (*labels, *weights) for finding in scanner.findings(rule)),
        ids_out_of_range=tuple(finding for rule in ids for finding in scanner.findings(rule)),
        warnings=scanner.warnings(),
    )


def _label_rule(name: str) -> _Rule:
    def find(place: Callable[[int], str], column: pa.ChunkedArray) -> str | None:
        bad = np.flatnonzero(bad_labels(*float_values(column)))
        if len(bad) == 0:
            return None
        value = column[int(bad[0])].as_py()
        return f"{place(int(bad[0]))}, column {name!r}: label is {'null' if value is None else value}, not 0 or 1"

    return _Rule(column=name, low=0, high=1, nulls_bad=True, find=find)


def _weight_rule(name: str) -> _Rule:
    def find(place: Callable[[int], str], column: pa.ChunkedArray) -> str | None:
        values, valid = float_values(column)
        weights = values.astype(np.float64)
        wrong = ~np.isfinite(weights) | (weights < 0)
        bad = np.flatnonzero(wrong if valid is None else wrong | ~valid)
        if len(bad) == 0:
            return None
        at = int(bad[0])
        return f"{place(at)}, column {name!r}: weight is {column[at].as_py()}, not a number >= 0"

    return _Rule(column=name, low=0, high=float(np.finfo(np.float32).max), nulls_bad=True, find=find)


def _id_rule(name: str, table: TableSpec) -> _Rule:
    def find(place: Callable[[int], str], column: pa.ChunkedArray) -> str | None:
        found = first_id_outside(id_column(column), table.rows)
        return None if found is None else id_problem(place(found[0]), name, found[1], table)

    return _Rule(column=name, low=0, high=table.rows - 1, nulls_bad=False, find=find)


class _Scanner:
    """Reads single columns of single row groups: at most MAX_SCANNED_GROUPS of them."""

    def __init__(self, facts: Sequence[ParquetFacts], units: Sequence[Unit]) -> None:
        self._facts = facts
        self._units = units
        self._budget = MAX_SCANNED_GROUPS
        self._unread = 0

    def findings(self, rule: _Rule) -> list[str]:
        found: dict[int, str] = {}
        for unit in self._units:
            facts = self._facts[unit.file]
            if unit.file in found or rule.column not in facts.leaf_numbers:
                continue
            if not self._suspicious(facts, unit, rule):
                continue
            if self._budget == 0:
                self._unread += 1
                continue
            self._budget -= 1
            problem = self._scan(facts, unit, rule)
            if problem is not None:
                found[unit.file] = problem
        return list(found.values())

    def warnings(self) -> tuple[str, ...]:
        if not self._unread:
            return ()
        return (
            f"{self._unread} row groups that may hold bad values were not checked before the start: the job stops when "
            "it reads a bad value",
        )

    def _suspicious(self, facts: ParquetFacts, unit: Unit, rule: _Rule) -> bool:
        """Whether the row group may hold a bad value, by its statistics. The first row group of a file is also read
        when it has no statistics that are numbers, and for columns of fractions: one may lie within the range."""
        is_first = facts.group_starts[unit.group] == 0
        leaf = facts.metadata.row_group(unit.group).column(facts.leaf_numbers[rule.column])
        statistics = leaf.statistics if leaf.is_stats_set else None
        if statistics is None:
            return is_first
        if rule.nulls_bad and (statistics.null_count if statistics.has_null_count else 0) > 0:
            return True
        if not statistics.has_min_max or not isinstance(statistics.min, int | float | Decimal):
            return is_first  # pyarrow returns the statistics of float16 as bytes
        if not rule.low <= statistics.min or not statistics.max <= rule.high:
            return True
        return is_first and not isinstance(statistics.min, int)

    def _scan(self, facts: ParquetFacts, unit: Unit, rule: _Rule) -> str | None:
        try:
            with (
                opened_parquet(facts.stamp) as source,
                pq.ParquetFile(source, metadata=facts.metadata, pre_buffer=False) as file,
            ):
                table = file.read_row_group(unit.group, columns=[facts.leaf_paths[rule.column]], use_threads=False)
        except (pa.ArrowException, OSError) as error:
            return f"{facts.stamp.path}: row group {unit.group} cannot be read ({str(error).splitlines()[0]})"
        return rule.find(
            lambda row: row_place(facts, unit.group, row, unit.skip),
            table.column(rule.column).slice(unit.skip, unit.samples),
        )
