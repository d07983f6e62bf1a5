"""The reader of files: describes them once, keeps one decoded unit, and cuts batches from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.decoded import DecodedUnit, PreparedUnit, cut_batches, prepare_unit, unit_permutation
from elastichost.errors import DataError
from elastichost.specs import TableSpec

__all__ = ["Decoder", "Inspection", "UnitReader", "ValueFindings", "check_range", "first_rows", "problem_list"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What footers and indexes say. `description` is None only when there is no file that can be described."""

    description: DatasetDescription | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueFindings:
    """Problems of values, one line each.

    bad_rows          rows that a reader stops at, or skips when the job says so
    ids_out_of_range  ids outside fixed tables that say `out_of_range = "error"`
    warnings          what works but works badly
    """

    bad_rows: tuple[str, ...] = ()
    ids_out_of_range: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Decoder(Protocol):
    """A file format: how to describe its files, and how to decode one of their units."""

    def inspect(self) -> Inspection:
        """All that is wrong with the files, one line for each problem; never raises for what the files contain."""
        ...

    def decode(self, unit: Unit) -> DecodedUnit:
        """The first `unit.samples` rows of the unit. Raises DataError naming file, row, column and value."""
        ...

    def stored_bytes(self, unit: Unit) -> float:
        """What `decode` reads of the file; called after `inspect` found no problem."""
        ...

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        """What statistics and first rows say of the values; called after `inspect` found no problem."""
        ...


class UnitReader:
    """A `Reader` over any `Decoder`."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._description: DatasetDescription | None = None
        self._prepared: tuple[Unit, int | None, PreparedUnit] | None = None

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    def describe(self) -> DatasetDescription:
        """Raises DataError with every problem of the files; reads footers and indexes only, and only once."""
        if self._description is None:
            inspection = self._decoder.inspect()
            if inspection.problems or inspection.description is None:
                raise DataError(problem_list(inspection.problems), hint="correct the job file or the data")
            self._description = inspection.description
        return self._description

    def stored_bytes(self, unit: Unit) -> float:
        """Bytes of the unit as they lie in its file, of the columns that are read. Raises DataError as `describe`."""
        self.describe()
        return self._decoder.stored_bytes(unit)

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        """See `Reader.batches`. Raises ValueError for a range outside the unit, DataError for bad data."""
        check_range(unit, start, stop, batch_size)
        prepared = self._prepare(unit, shuffle_seed)
        return cut_batches(prepared, unit.index, start, stop, batch_size, min_samples)

    def _prepare(self, unit: Unit, shuffle_seed: int | None) -> PreparedUnit:
        if self._prepared is not None and self._prepared[:2] == (unit, shuffle_seed):
            return self._prepared[2]
        description = self.describe()
        if unit.index >= len(description.units) or description.units[unit.index] != unit:
            known = description.files[unit.file] if unit.file < len(description.files) else f"file {unit.file}"
            raise DataError(
                f"{known}: changed since the job started (unit {unit.index} had {unit.samples} samples)",
                hint="data files must stay as they are while a job runs: write new data to new files and start again",
            )
        self._prepared = None  # two decoded units at once would double the memory of a reader
        order = None if shuffle_seed is None else unit_permutation(unit, shuffle_seed)
        prepared = prepare_unit(self._decoder.decode(unit), order)
        self._prepared = (unit, shuffle_seed, prepared)
        return prepared


def check_range(unit: Unit, start: int, stop: int, batch_size: int) -> None:
    """Raises ValueError unless 0 <= start <= stop <= unit.samples and batch_size >= 1."""
    if not 0 <= start <= stop <= unit.samples:
        raise ValueError(f"positions [{start}, {stop}) are not a range of unit {unit.index} of {unit.samples} samples")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")


def problem_list(problems: tuple[str, ...]) -> str:
    """One message of any number of problems."""
    if len(problems) == 1:
        return problems[0]
    return "\n".join((f"{len(problems)} problems with the data:", *(f"  - {problem}" for problem in problems)))


def first_rows(units: tuple[Unit, ...], limit_rows: int) -> tuple[Unit, ...]:
    """The units that hold the first `limit_rows` samples, the last one cut short; 0: all of them."""
    if limit_rows == 0:
        return units
    kept: list[Unit] = []
    for unit in units:
        samples = min(unit.samples, limit_rows - unit.first_sample)
        if samples <= 0:
            break
        kept.append(
            Unit(
                index=unit.index,
                first_sample=unit.first_sample,
                samples=samples,
                file=unit.file,
                group=unit.group,
            )
        )
    return tuple(kept)
