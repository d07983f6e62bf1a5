"""What a dataset reader gives: units of samples, and batches of arrays ready for a KeyedJaggedTensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.specs import KeyKind

__all__ = ["DatasetDescription", "Reader", "SampleBatch", "Unit"]


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A contiguous run of samples that is cheapest to read as a whole (a Parquet row group).

    Positions inside a unit run from 0 to `samples`; a lease is a range of positions of one unit. Sample
    ids are global: `first_sample + position` in file order.
    """

    index: int
    first_sample: int
    samples: int
    file: int
    group: int  # row group number, or the byte-range number of a text file, or the synthetic block


class DatasetDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read from footers and indexes only; never from all the data."""

    samples: int
    units: tuple[Unit, ...]
    files: tuple[str, ...]
    key_kinds: dict[str, KeyKind]  # categorical column -> kind of its ids
    multi_valued: tuple[str, ...]  # categorical columns that are lists
    num_dense: int
    num_labels: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """`size` samples. Keys are feature-major as torchrec's KeyedJaggedTensor wants them.

    dense    float32 [size, num_dense]
    keys     int64   [lengths.sum()]: for every categorical column in job order, for every sample, its ids
             (an int id as it is; a string id as XXH64 of its UTF-8 bytes, seed 0, reinterpreted as int64)
    lengths  int32   [num_categorical * size]; a null id or an empty list is a length of 0
    labels   float32 [size, num_labels]
    weights  float32 [size] or None
    truth    float32 [size] or None: the planted probability (synthetic data only)
    start, stop: the range of positions in the unit this batch accounts for. stop - start == size + skipped.
    is_single_valued: every length is 1 (false when nobody has looked)
    """

    unit: int
    start: int
    stop: int
    size: int
    skipped: int
    dense: npt.NDArray[np.float32]
    keys: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32] | None = None
    truth: npt.NDArray[np.float32] | None = None
    is_single_valued: bool = False


class Reader(Protocol):
    """One dataset (the train or the test files of a job). Not thread-safe; cheap to construct."""

    def describe(self) -> DatasetDescription:
        """Raises DataError (missing file, missing column, empty file, type mismatch), naming file and column."""
        ...

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        """Positions [start, stop) of one unit, in batches of `batch_size` (the last may be shorter; one with fewer than
        `min_samples` samples joins the one before).

        With `shuffle_seed` the unit's positions are a permutation of its samples, fixed by the seed, so
        disjoint ranges stay disjoint. The decoded unit is kept until another unit is asked for: consecutive
        ranges of one unit decode it once. Raises DataError naming file, row and column.
        """
        ...
