"""A decoded unit in memory, and how batches are cut from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import kernel_ready
from elastichost.batches import batch_ranges
from elastichost.datasets.api import SampleBatch, Unit
from elastichost.datasets.kernels.ragged import ragged_lengths, take_ragged

__all__ = [
    "DecodedUnit",
    "IdColumn",
    "PreparedUnit",
    "cut_batches",
    "prepare_unit",
    "single_valued",
    "unit_permutation",
]


@dataclass(frozen=True, slots=True)
class IdColumn:
    """The ids of one categorical column.

    keys     int64 [values]
    offsets  int64 [samples + 1]: sample i has keys[offsets[i]:offsets[i + 1]]; None: sample i has keys[i]
    """

    keys: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64] | None = None


def single_valued(keys: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None) -> IdColumn:
    """A column with one id for each sample, and no id where `valid` [samples] is False."""
    if valid is None or bool(valid.all()):
        return IdColumn(keys=keys)
    offsets = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(valid, out=offsets[1:])
    return IdColumn(keys=keys[valid], offsets=offsets)


@dataclass(frozen=True, slots=True)
class DecodedUnit:
    """All samples of a unit in file order.

    dense float32 [samples, num_dense]; labels float32 [samples, num_labels]; weights float32 [samples] or None;
    ids: one IdColumn for each categorical column, in job order; bad: bool [samples], or None when all rows are good.
    """

    samples: int
    dense: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]
    ids: tuple[IdColumn, ...]
    weights: npt.NDArray[np.float32] | None = None
    bad: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class PreparedUnit:
    """A decoded unit, and its good samples in position order.

    samples int64 [good samples]: where each of them lies in the decoded unit; None: all, in file order
    good_positions int64 [good samples]: the position of each of them, rising; None when all are good
    """

    decoded: DecodedUnit
    samples: npt.NDArray[np.int64] | None
    good_positions: npt.NDArray[np.int64] | None


def unit_permutation(unit: Unit, shuffle_seed: int) -> npt.NDArray[np.int64]:
    """int64 [unit.samples]: the sample at each position of the shuffled unit. It depends on the seed and on the
    unit."""
    entropy = (shuffle_seed % 2**64, unit.index)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy))).permutation(unit.samples)


def prepare_unit(decoded: DecodedUnit, order: npt.NDArray[np.int64] | None) -> PreparedUnit:
    """Puts the samples into position order (`order` int64 [samples]; None: file order), without the bad ones. No sample
    is copied: batches are gathered from the decoded unit."""
    if decoded.bad is None:
        return PreparedUnit(decoded, order, None)
    bad = decoded.bad if order is None else decoded.bad[order]
    good_positions = np.flatnonzero(~bad).astype(np.int64, copy=False)
    return PreparedUnit(decoded, good_positions if order is None else order[good_positions], good_positions)


def cut_batches(
    prepared: PreparedUnit, unit: int, start: int, stop: int, batch_size: int, min_samples: int = 1
) -> Iterator[SampleBatch]:
    """Cuts the positions [start, stop) into batches of `batch_size` good samples. A batch covers the bad rows before
    its samples; the last batch also covers the bad rows at the end.

    A last batch with fewer than `min_samples` good samples joins the batch before it. A range with only bad rows gives
    one batch of size 0.
    """
    if start == stop:
        return
    if prepared.good_positions is None:
        for first, last in batch_ranges(start, stop, batch_size, min_samples):
            yield _assemble(prepared, unit, first, last, first, last)
        return
    good = prepared.good_positions
    first_good, stop_good = (int(bound) for bound in np.searchsorted(good, (start, stop)))
    position = start
    ranges = batch_ranges(first_good, stop_good, batch_size, min_samples)
    for first, last in ranges if first_good < stop_good else [(first_good, stop_good)]:
        end = stop if last == stop_good else int(good[last - 1]) + 1
        yield _assemble(prepared, unit, first, last, position, end)
        position = end


def _assemble(prepared: PreparedUnit, unit: int, first: int, last: int, start: int, stop: int) -> SampleBatch:
    """A batch of the good samples [first, last), which covers the positions [start, stop)."""
    size, decoded = last - first, prepared.decoded
    if prepared.samples is None:
        samples: slice | npt.NDArray[np.int64] = slice(first, last)
        keys, lengths = _sliced_ids(decoded.ids, first, last)
    else:
        samples = prepared.samples[first:last]
        keys, lengths = _gathered_ids(decoded.ids, samples)
    return SampleBatch(
        unit=unit,
        start=start,
        stop=stop,
        size=size,
        skipped=stop - start - size,
        dense=decoded.dense[samples],
        keys=keys,
        lengths=lengths,
        labels=decoded.labels[samples],
        weights=None if decoded.weights is None else decoded.weights[samples],
        is_single_valued=all(column.offsets is None for column in decoded.ids),
    )


def _sliced_ids(
    columns: Sequence[IdColumn], first: int, last: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The feature-major keys int64 and lengths int32 [len(columns) * (last - first)] of the samples [first, last)."""
    size = last - first
    lengths = np.ones(len(columns) * size, dtype=np.int32)
    slices: list[npt.NDArray[np.int64]] = []
    for index, column in enumerate(columns):
        if column.offsets is None:
            slices.append(column.keys[first:last])
            continue
        offsets = column.offsets[first : last + 1]
        slices.append(column.keys[offsets[0] : offsets[-1]])
        np.subtract(offsets[1:], offsets[:-1], out=lengths[index * size : (index + 1) * size], casting="same_kind")
    keys = np.concatenate(slices) if slices else np.empty(0, dtype=np.int64)
    return keys, lengths


def _gathered_ids(
    columns: Sequence[IdColumn], samples: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """As `_sliced_ids`, of `samples` int64 [size] in this order."""
    size = len(samples)
    lengths = np.ones(len(columns) * size, dtype=np.int32)
    counts = [
        size
        if column.offsets is None
        else ragged_lengths(column.offsets, samples, lengths[at * size : (at + 1) * size])
        for at, column in enumerate(columns)
    ]
    keys = np.empty(sum(counts), dtype=np.int64)
    start = 0
    for column, count in zip(columns, counts, strict=True):
        out = keys[start : start + count]
        if column.offsets is None:
            np.take(column.keys, samples, out=out, mode="clip")  # "raise" would copy: every sample is in the unit
        else:
            take_ragged(kernel_ready(column.keys), column.offsets, samples, out)
        start += count
    return keys, lengths
