"""From a table with named columns to a decoded unit: checks and converts labels, weights, dense values and ids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elastichost.datasets.arrow_columns import float_values, id_column
from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.decoded import DecodedUnit
from elastichost.datasets.settings import DataSettings

__all__ = ["bad_labels", "decode_table", "dense_matrix", "finish_dense", "nan_warnings"]

Locate = Callable[[int], str]


def decode_table(table: pa.Table, settings: DataSettings, log: BadRowLog, locate: Locate) -> DecodedUnit:
    """Decodes a table that has all of `settings.columns`. Bad rows are added to `log`, with the place `locate(row)`.

    The caller calls `log.settle` and puts its mask into the result.
    """
    return DecodedUnit(
        samples=table.num_rows,
        labels=_label_matrix(table, settings, log, locate),
        weights=_weights(table, settings, log, locate),
        dense=dense_matrix(table, settings, log, locate),
        ids=tuple(id_column(table.column(name)) for name in settings.categorical),
    )


def bad_labels(values: npt.NDArray[np.generic], valid: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
    """bool [n]: True for a label that is null, or neither 0 nor 1."""
    bad: npt.NDArray[np.bool_] = (values != 0) & (values != 1)
    return bad if valid is None else bad | ~valid


def _label_matrix(table: pa.Table, settings: DataSettings, log: BadRowLog, locate: Locate) -> npt.NDArray[np.float32]:
    """float32 [rows, labels]. NaN where the column is absent, which is allowed for data without labels."""
    labels = np.full((table.num_rows, len(settings.labels)), np.nan, dtype=np.float32)
    for index, name in enumerate(settings.labels):
        if name not in table.column_names:
            continue
        column = table.column(name)
        values, valid = float_values(column)
        bad = bad_labels(values, valid)
        if bad.any():
            log.add(bad, partial(_label_text, locate, column, name))
        labels[:, index] = np.where(bad, 0, values)
    return labels


def _label_text(locate: Locate, column: pa.ChunkedArray, name: str, row: int) -> str:
    value = column[row].as_py()
    return f"{locate(row)}, column {name!r}: label is {'null' if value is None else value}, not 0 or 1"


def _weights(table: pa.Table, settings: DataSettings, log: BadRowLog, locate: Locate) -> npt.NDArray[np.float32] | None:
    """float32 [rows]: finite and not negative in good rows. None when the job has no weights, or the data that are
    scored have none, or have no labels: weights then count for nothing."""
    if settings.weight not in table.column_names or not set(settings.labels) & set(table.column_names):
        return None
    column = table.column(settings.weight)
    values, valid = float_values(column)
    with np.errstate(over="ignore"):  # a weight too large for float32 becomes infinite, which makes a bad row
        weights = values.astype(np.float32)
    bad = ~np.isfinite(weights) | (weights < 0)
    if valid is not None:
        bad |= ~valid
    log.add(
        bad,
        lambda row: f"{locate(row)}, column {settings.weight!r}: weight is {column[row].as_py()}, not a number >= 0",
    )
    return weights


def dense_matrix(table: pa.Table, settings: DataSettings, log: BadRowLog, locate: Locate) -> npt.NDArray[np.float32]:
    """float32 [rows, dense columns] of a table with these columns, transformed, and finite in good rows."""
    dense = np.empty((table.num_rows, len(settings.dense)), dtype=np.float32)
    nulls = np.zeros(len(settings.dense), dtype=np.int64)
    for index, name in enumerate(settings.dense):
        values, valid = float_values(table.column(name))
        with np.errstate(over="ignore"):
            dense[:, index] = values
        if valid is not None:
            dense[~valid, index] = np.nan
            nulls[index] = len(valid) - np.count_nonzero(valid)
    where = partial(_dense_place, locate, settings)
    return finish_dense(dense, settings, log, where, nulls)


def _dense_place(locate: Locate, settings: DataSettings, row: int, column: int) -> str:
    return f"{locate(row)}, column {settings.dense[column]!r}"


def finish_dense(
    dense: npt.NDArray[np.float32],
    settings: DataSettings,
    log: BadRowLog,
    locate: Callable[[int, int], str],
    nulls: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.float32]:
    """Transforms dense float32 [rows, columns] in place, then replaces NaN (also that of nulls) by `null_fill`.

    `log1p` is log(1 + max(x, 0)), `signed_log1p` is log(1 + |x|) with the sign of x. A row with an infinite value is
    bad; `locate(row, column)` is its place. nulls: int64 [columns], how many of the NaN are nulls, None: all; the
    others are counted in `log.nans`.
    """
    if settings.dense_transform == "log1p":
        np.log1p(np.maximum(dense, 0, out=dense), out=dense)
    elif settings.dense_transform == "signed_log1p":
        np.copysign(np.log1p(np.abs(dense)), dense, out=dense)
    finite = np.isfinite(dense)
    if finite.all():
        return dense
    missing = np.isnan(dense)
    infinite = ~finite & ~missing
    if infinite.any():
        log.add(
            np.asarray(infinite.any(axis=1)),
            lambda row: f"{locate(row, int(np.argmax(infinite[row])))}: value is infinite in float32",
        )
    if nulls is not None:
        counts = np.count_nonzero(missing, axis=0) - nulls
        log.nans.update({settings.dense[at]: int(counts[at]) for at in np.flatnonzero(counts)})
    dense[~finite] = settings.null_fill
    return dense


def nan_warnings(path: str, log: BadRowLog, settings: DataSettings) -> tuple[str, ...]:
    """One warning for each dense column in which NaN was found: it is treated as a null, which may not be meant."""
    return tuple(
        f"{path}: column {name!r} is NaN in {count:,} of the first {len(log.mask):,} rows: NaN counts as a missing "
        f"value and becomes data.null_fill = {settings.null_fill:g}"
        for name, count in log.nans.items()
    )
