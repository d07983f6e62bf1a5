"""The group columns of metrics such as "gauc(user)": they are read with the test data, and taken off every batch.

A group column that is a feature is one of the job's categorical columns already. Others are read as further categorical
columns after those (`datasets.settings.extra_groups`), so every format reads them as it reads ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elastichost.config.job import JobSpec
from elastichost.config.metric_names import group_columns
from elastichost.datasets.api import SampleBatch
from elastichost.datasets.settings import extra_groups

__all__ = ["BatchGroups", "take_groups"]


class BatchGroups(NamedTuple):
    """The groups of a batch. ids: int64 [size, columns]; has_id: bool [size, columns], False for a null id."""

    ids: npt.NDArray[np.int64]
    has_id: npt.NDArray[np.bool_]


def take_groups(job: JobSpec, batch: SampleBatch) -> tuple[SampleBatch, BatchGroups]:
    """(the batch with the features of the job only, the groups of its samples). batch: of the job's own test data."""
    wanted, extra = group_columns(job.evaluate.metrics), extra_groups(job)
    columns = (*job.data.categorical, *extra)
    size = batch.size
    lengths = batch.lengths.reshape(len(columns), size)
    first_key = np.concatenate(([0], np.cumsum(lengths.sum(axis=1, dtype=np.int64))))
    ids = np.zeros((size, len(wanted)), dtype=np.int64)
    has_id = np.zeros((size, len(wanted)), dtype=np.bool_)
    for place, name in enumerate(wanted):
        column = columns.index(name)
        has_id[:, place] = lengths[column] > 0
        ids[has_id[:, place], place] = batch.keys[first_key[column] : first_key[column + 1]]
    if not extra:
        return batch, BatchGroups(ids, has_id)
    features = len(job.data.categorical)
    kept = replace(
        batch,
        keys=batch.keys[: first_key[features]],
        lengths=batch.lengths[: features * size],
        is_single_valued=batch.is_single_valued or bool((lengths[:features] == 1).all()),
    )
    return kept, BatchGroups(ids, has_id)
