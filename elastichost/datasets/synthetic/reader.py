"""Generated data in the shape of Criteo's, with planted truth: it needs no download, and a model can reach a good
AUC."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elastichost.batches import batch_ranges
from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.decoded import unit_permutation
from elastichost.datasets.reader import check_range, units_of_split
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.synthetic.kernel import NUM_PARTS, Draws, Truth, draw_samples, label_samples
from elastichost.errors import DataError

if TYPE_CHECKING:
    from elastichost.config.sections.data import SyntheticSettings

__all__ = ["SyntheticReader", "SyntheticShape", "synthetic_shape"]

TEST_FIRST_INDEX = 2**40  # so no test sample is a training sample
PILOT_FIRST_INDEX = 2**41
PILOT_SAMPLES = 4096
# Shares of the logit's variance: main effects, pairs, dense values. With this spread and bias, the true probabilities
# have an AUC of about 0.80, and a quarter of the labels is positive.
PART_SHARES = (0.55, 0.10, 0.35)
SHRINK_RANK = 32.0
LOGIT_SPREAD = 1.38
LOGIT_BIAS = -1.4


@dataclass(frozen=True, slots=True)
class SyntheticShape:
    """The shape of one split. The last `multi_valued` tables have a list of ids in each sample, the others one id.

    zipf: exponent of the power law of the ids' frequencies (0: uniform). seed: the only source of randomness.
    """

    first_index: int
    samples: int
    tables: int
    table_rows: int
    zipf: float
    dense: int
    multi_valued: int
    list_length: int
    interactions: int
    seed: int
    unit_rows: int


def synthetic_shape(synthetic: SyntheticSettings, settings: DataSettings) -> SyntheticShape:
    """The shape of one split of a job. Raises DataError when the job names columns other than the generated ones."""
    dense = tuple(f"d{index}" for index in range(synthetic.dense))
    categorical = tuple(f"c{index}" for index in range(synthetic.tables))
    if (settings.labels, settings.dense, settings.categorical) != (("label",), dense, categorical) or settings.weight:
        raise DataError(
            "the columns of format synthetic are fixed: label, "
            f"d0 to d{synthetic.dense - 1} and c0 to c{synthetic.tables - 1}, no weight",
            hint="remove data.label, weight, dense and categorical; set data.synthetic.dense and data.synthetic.tables",
        )
    is_train = settings.split == "train"
    return SyntheticShape(
        first_index=0 if is_train else TEST_FIRST_INDEX,
        samples=synthetic.rows if is_train else synthetic.test_rows,
        tables=synthetic.tables,
        table_rows=synthetic.table_rows,
        zipf=synthetic.zipf,
        dense=synthetic.dense,
        multi_valued=synthetic.multi_valued,
        list_length=synthetic.list_length,
        interactions=synthetic.interactions,
        seed=synthetic.seed,
        unit_rows=synthetic.unit_rows,
    )


@dataclass(frozen=True, slots=True)
class _Planted:
    """The planted truth, and the scale of its logit: logit = bias + parts @ slopes."""

    truth: Truth
    bias: float
    slopes: npt.NDArray[np.float64]


class SyntheticReader:
    """A `Reader` that generates each batch when it is requested. It keeps only the permutation of a shuffled unit."""

    def __init__(self, shape: SyntheticShape, settings: DataSettings) -> None:
        self._shape = shape
        self._settings = settings
        self._planted: _Planted | None = None
        self._description: DatasetDescription | None = None
        self._order: tuple[Unit, int, npt.NDArray[np.int64]] | None = None

    def describe(self) -> DatasetDescription:
        """See `Reader.describe`. It raises no error, because there are no files."""
        if self._description is None:
            shape = self._shape
            starts = range(0, shape.samples, shape.unit_rows)
            units = tuple(
                Unit(index, start, min(shape.unit_rows, shape.samples - start), 0, index)
                for index, start in enumerate(starts)
            )
            kept = units_of_split(units, self._settings)
            self._description = DatasetDescription(
                samples=sum(unit.samples for unit in kept),
                units=kept,
                files=(f"synthetic {self._settings.split} data",),
                key_kinds=dict.fromkeys(self._settings.categorical, "int"),
                multi_valued=self._settings.categorical[shape.tables - shape.multi_valued :],
                num_dense=shape.dense,
                num_labels=1,
            )
        return self._description

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        """See `Reader.batches`. `truth` of a batch holds the true probabilities."""
        check_range(unit, start, stop, batch_size)
        order = None if shuffle_seed is None else self._permutation(unit, shuffle_seed)
        first_index = self._shape.first_index + unit.first_sample
        for first, last in batch_ranges(start, stop, batch_size, min_samples):
            positions = np.arange(first, last, dtype=np.int64) if order is None else order[first:last]
            yield self._generate(unit.index, first, last, positions + first_index)

    def _permutation(self, unit: Unit, shuffle_seed: int) -> npt.NDArray[np.int64]:
        if self._order is None or self._order[:2] != (unit, shuffle_seed):
            self._order = (unit, shuffle_seed, unit_permutation(unit, shuffle_seed))
        return self._order[2]

    def _generate(self, unit: int, start: int, stop: int, indices: npt.NDArray[np.int64]) -> SampleBatch:
        if self._planted is None:
            self._planted = _plant(self._shape)
        planted, size = self._planted, len(indices)
        draws = _draw(planted.truth, indices)
        labels = np.empty((size, 1), dtype=np.float32)
        probabilities = np.empty(size, dtype=np.float32)
        label_samples(
            planted.truth, indices, draws.parts, planted.bias, planted.slopes, labels.reshape(-1), probabilities
        )
        totals = draws.list_lengths.sum(axis=1)
        lists = [keys[:total] for keys, total in zip(draws.list_keys, totals, strict=True)]
        ones = np.ones(draws.single_keys.size, dtype=np.int32)
        return SampleBatch(
            unit=unit,
            start=start,
            stop=stop,
            size=size,
            skipped=0,
            dense=draws.dense,
            keys=np.concatenate([draws.single_keys.reshape(-1), *lists]),
            lengths=np.concatenate([ones, draws.list_lengths.reshape(-1)]),
            labels=labels,
            truth=probabilities,
        )


def _draw(truth: Truth, indices: npt.NDArray[np.int64]) -> Draws:
    size, lists = len(indices), len(truth.main_weights) - truth.single_tables
    draws = Draws(
        dense=np.empty((size, len(truth.dense_weights)), dtype=np.float32),
        single_keys=np.empty((truth.single_tables, size), dtype=np.int64),
        list_keys=np.empty((lists, size * truth.list_length), dtype=np.int64),
        list_lengths=np.empty((lists, size), dtype=np.int32),
        parts=np.empty((size, NUM_PARTS), dtype=np.float64),
    )
    draw_samples(truth, indices, draws)
    return draws


def _plant(shape: SyntheticShape) -> _Planted:
    """Makes the planted truth, and scales its logit on pilot samples, so that the AUC does not depend on the shape."""
    truth = _make_truth(shape)
    pilot = np.arange(PILOT_FIRST_INDEX, PILOT_FIRST_INDEX + PILOT_SAMPLES, dtype=np.int64)
    parts = _draw(truth, pilot).parts
    means, spreads = parts.mean(axis=0), parts.std(axis=0)
    shares = np.where(spreads > 1e-9, PART_SHARES, 0.0)
    if shares.sum() > 0:
        shares /= shares.sum()
    slopes = LOGIT_SPREAD * np.sqrt(shares) / np.where(spreads > 1e-9, spreads, 1.0)
    return _Planted(truth=truth, bias=LOGIT_BIAS - float(means @ slopes), slopes=slopes)


def _make_truth(shape: SyntheticShape) -> Truth:
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((shape.seed, shape.tables, shape.table_rows))))
    low, high = 0.5, shape.table_rows + 0.5
    exponent = 1.0 - shape.zipf
    if abs(exponent) < 1e-9:
        power_low, power_high, inverse_power = math.log(low), math.log(high), 0.0
    else:
        power_low, power_high, inverse_power = low**exponent, high**exponent, 1.0 / exponent
    in_pair = np.zeros(shape.tables, dtype=np.bool_)
    count = shape.interactions if shape.tables > 1 else 0
    pairs = np.array(
        [random.choice(shape.tables, size=2, replace=False) for _ in range(count)], dtype=np.int64
    ).reshape(count, 2)
    in_pair[pairs.reshape(-1)] = True
    return Truth(
        seed=np.uint64(int(random.integers(2**63))),
        rows=shape.table_rows,
        power_low=power_low,
        power_span=power_high - power_low,
        inverse_power=inverse_power,
        shrink_per_rank=min(shape.zipf, 1.0) / SHRINK_RANK,  # with uniform ids, no id is rare
        multipliers=np.array([_coprime(random, shape.table_rows) for _ in range(shape.tables)], dtype=np.int64),
        addends=random.integers(shape.table_rows, size=shape.tables, dtype=np.int64),
        main_weights=0.5 + random.random(shape.tables),
        pairs=pairs,
        in_pair=in_pair,
        dense_weights=0.5 + random.random(shape.dense),
        single_tables=shape.tables - shape.multi_valued,
        list_length=shape.list_length,
    )


def _coprime(random: np.random.Generator, rows: int) -> int:
    """A random multiplier that is coprime to `rows`, so that rank -> id is a bijection of [0, rows)."""
    candidate = int(random.integers(rows))
    while math.gcd(candidate, rows) != 1:
        candidate = (candidate + 1) % rows
    return candidate
