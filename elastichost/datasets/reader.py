"""The reader of files of any format: it describes them once, keeps one decoded unit, and cuts batches from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.decoded import DecodedUnit, PreparedUnit, cut_batches, prepare_unit, unit_permutation
from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.settings import DataSettings
from elastichost.errors import DataError
from elastichost.specs import TableSpec

__all__ = [
    "Decoder",
    "ForwardingDecoder",
    "Inspection",
    "Stamped",
    "UnitReader",
    "ValueFindings",
    "check_range",
    "problem_list",
    "units_of_split",
]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of reading footers and indexes. `description` is None when no description can be made."""

    description: DatasetDescription | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueFindings:
    """Problems with values, one line each.

    bad_rows          rows at which a reader stops; with data.bad_rows = "skip" it skips them
    ids_out_of_range  ids outside fixed tables with `out_of_range = "error"`
    warnings          problems with which the job can run
    """

    bad_rows: tuple[str, ...] = ()
    ids_out_of_range: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Decoder(Protocol):
    """A file format: how its files are described, and how a unit is decoded."""

    def inspect(self) -> Inspection:
        """Describes the files, with one line for each problem. It raises no error for the content of files."""
        ...

    def decode(self, unit: Unit) -> DecodedUnit:
        """Decodes `unit.samples` rows of the unit's group, after its first `unit.skip`. Raises DataError with file,
        row, column and value."""
        ...

    def stored_bytes(self, unit: Unit) -> float:
        """The number of bytes that `decode` reads. It is called only after `inspect` found no problem."""
        ...

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        """Checks values by statistics and first rows. It is called only after `inspect` found no problem."""
        ...


@runtime_checkable
class Stamped(Protocol):
    """A decoder that names its files, so that a run keeps to them. A decoder of the user's own may have this method."""

    def stamps(self) -> tuple[FileStamp, ...]:
        """The files as they were when they were inspected, in the order in which they are read."""
        ...


class ForwardingDecoder:
    """The base of a `Decoder` that changes how units are decoded, and asks another one for all facts about the files.
    A derived class has `decode`."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def inspect(self) -> Inspection:
        return self._decoder.inspect()

    def stored_bytes(self, unit: Unit) -> float:
        return self._decoder.stored_bytes(unit)

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        return self._decoder.check_values(tables)


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
        """The description of the files. It reads footers and indexes only, and only once. Raises DataError with every
        problem."""
        if self._description is None:
            inspection = self._decoder.inspect()
            if inspection.problems or inspection.description is None:
                raise DataError(problem_list(inspection.problems), hint="correct the settings or the data")
            self._description = inspection.description
        return self._description

    def stamps(self) -> tuple[FileStamp, ...]:
        """The files as they were when they were described; (): the decoder does not name them."""
        return tuple(self._decoder.stamps()) if isinstance(self._decoder, Stamped) else ()

    def stored_bytes(self, unit: Unit) -> float:
        """The bytes of the unit in its file, of the columns that are read. Raises DataError as `describe` does."""
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
                hint="do not change data files while a job runs: write new data to new files and start again",
            )
        self._prepared = None  # freed first: two decoded units would double the memory of a reader
        order = None if shuffle_seed is None else unit_permutation(unit, shuffle_seed)
        prepared = prepare_unit(self._decoder.decode(unit), order)
        self._prepared = (unit, shuffle_seed, prepared)
        return prepared


def check_range(unit: Unit, start: int, stop: int, batch_size: int) -> None:
    """Raises ValueError unless 0 <= start <= stop <= unit.samples and batch_size >= 1."""
    if not 0 <= start <= stop <= unit.samples:
        raise ValueError(f"positions [{start}, {stop}) are not a range of unit {unit.index} of {unit.samples} samples")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} is out of range (at least 1)")


def problem_list(problems: tuple[str, ...]) -> str:
    """One message for any number of problems."""
    if len(problems) == 1:
        return problems[0]
    return "\n".join((f"{len(problems)} problems with the data:", *(f"  - {problem}" for problem in problems)))


# --- the samples of a split -------------------------------------------------------------------------------------------


def units_of_split(units: Sequence[Unit], settings: DataSettings) -> tuple[Unit, ...]:
    """The units with the samples of this split, of all units of its files.

    With `test_fraction` the last samples of the training files are the test data, at least one of them if there are
    two. `limit_rows` cuts what is left for training.
    """
    total = sum(unit.samples for unit in units)
    held_back = 0
    if settings.test_fraction and total > 1:
        held_back = min(max(1, round(settings.test_fraction * total)), total - 1)
    if settings.split == "test" and settings.test_fraction:
        return _after(units, total - held_back)
    limits = [limit for limit in (settings.limit_rows, total - held_back if held_back else 0) if limit]
    return _first(units, min(limits)) if limits else tuple(units)


def _first(units: Sequence[Unit], samples: int) -> tuple[Unit, ...]:
    """The units with the first samples; the last unit is cut short."""
    kept: list[Unit] = []
    for unit in units:
        left = samples - unit.first_sample
        if left <= 0:
            break
        kept.append(msgspec.structs.replace(unit, samples=min(unit.samples, left)))
    return tuple(kept)


def _after(units: Sequence[Unit], samples: int) -> tuple[Unit, ...]:
    """The units with the samples after the first ones, numbered from 0; the first unit lacks its beginning."""
    kept: list[Unit] = []
    for unit in units:
        skip = max(0, samples - unit.first_sample)
        if skip < unit.samples:
            first = unit.first_sample + skip - samples
            kept.append(Unit(len(kept), first, unit.samples - skip, unit.file, unit.group, skip))
    return tuple(kept)
