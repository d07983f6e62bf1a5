"""The interface of dataset readers: units of samples, and batches of arrays that are ready for a KeyedJaggedTensor."""

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
    """A contiguous range of samples that is read as a whole, such as a Parquet row group.

    Positions in a unit are 0 to `samples` - 1; a lease is a range of positions of one unit. The global number of a
    sample in file order is `first_sample` + position. skip: rows of the group before the first sample of the unit.
    """

    index: int
    first_sample: int
    samples: int
    file: int
    group: int  # number of the row group, of the byte range of a text file, or of the synthetic block
    skip: int = 0


class DatasetDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts about a dataset that are known from footers and indexes, without reading all data.

    units: numbered from 0 in file order, none without samples; `samples` is the sum of theirs. files: paths or other
    names, at least one, which messages show; `Unit.file` is an index of them. warnings: shown when a run starts."""

    samples: int
    units: tuple[Unit, ...]
    files: tuple[str, ...]
    key_kinds: dict[str, KeyKind]  # categorical column -> kind of its ids
    multi_valued: tuple[str, ...]  # categorical columns that hold lists
    num_dense: int
    num_labels: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """`size` samples. Keys are feature-major, as in torchrec's KeyedJaggedTensor.

    dense    float32 [size, num_dense]
    keys     int64   [lengths.sum()]: for every categorical column in job order, for every sample, its ids
             (an int id unchanged; a string id as XXH64 of its UTF-8 bytes, seed 0, reinterpreted as int64)
    lengths  int32   [num_categorical * size]; 0 for a null id or an empty list
    labels   float32 [size, num_labels]
    weights  float32 [size] or None
    truth    float32 [size] or None: the true probabilities (synthetic data only)
    start, stop: the range of positions in the unit that this batch covers. stop - start == size + skipped.
    is_single_valued: True when every length is 1; False when some are not, or when it is not known
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
    """Reads one dataset: the train or the test files of a job. Not thread-safe; cheap to construct, as each process
    that reads makes its own. `data.format = "package.module:Reader"` names a class of the user, which is called with
    the job (a JobSpec) and "train" or "test" (docs/how-to/write-a-reader.md).

    The supervisor leases positions of units and accounts for positions. So that every sample counts exactly once, units
    and positions must mean the same in every process and in every resumed run."""

    def describe(self) -> DatasetDescription:
        """The description of the dataset: equal in every process and every resumed run, in number, order and sizes of
        the units. Raises DataError with file and column: a file is missing or empty, or a column is missing or has a
        wrong type."""
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
        """Positions [start, stop) of one unit in batches of `batch_size` samples. The last batch may be smaller; with
        fewer than `min_samples` samples it joins the batch before it.

        Each position is in exactly one batch, in rising order: `start` of a batch is `stop` of the one before it. A
        position always has the same sample, however the unit is cut into ranges. No range gives no batch; a range with
        bad samples only gives one batch of size 0.

        With `shuffle_seed` the positions of the unit are a permutation of its samples. The seed fixes the permutation,
        so disjoint ranges hold disjoint samples. The decoded unit is kept until another unit is requested, so
        consecutive ranges of one unit decode it once. Raises DataError with file, row and column: for a bad sample,
        unless it is skipped and counted; and for a file that has changed since `describe`.
        """
        ...
