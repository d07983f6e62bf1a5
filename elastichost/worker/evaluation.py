"""Scores a range of the test set with the present weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elastichost.batches import scored_batch
from elastichost.errors import PreflightError
from elastichost.wire.codec import Frame
from elastichost.wire.control import EvaluationGrantMsg, EvaluationScoresMsg
from elastichost.worker.evaluation_groups import take_groups
from elastichost.worker.heap import release_free_heap
from elastichost.worker.setup import LeaseParts, SyncParts

__all__ = ["KeptColumns", "score_range"]


def score_range(
    parts: LeaseParts | SyncParts, grant: EvaluationGrantMsg, between: Callable[[], None]
) -> tuple[EvaluationScoresMsg, Sequence[Frame]]:
    """Scores positions [start, stop) of one test unit. Frames: those of EvaluationScoresMsg.

    `between` is called after every batch, so that heartbeats go on. No rows are created: an id that was never seen in
    training is left out of its bag; in a sequence it keeps its place. Raises PreflightError without test data.

    Free memory is returned to the system before and after: blocks of scoring do not fit into the holes that training
    leaves in the heap, and a checkpoint, for which PS copy their rows, often follows. A range takes about a second, the
    return of its memory milliseconds.
    """
    if parts.test_reader is None or parts.test_description is None:
        raise PreflightError("an evaluation was requested, but the job has no test data")
    unit = parts.test_description.units[grant.unit]
    kept, skipped = KeptColumns(grant.stop - grant.start), 0
    batch_size = scored_batch(parts.job.train.largest_part)
    parts.runner.train(False)
    release_free_heap()
    try:
        for batch in parts.test_reader.batches(unit, grant.start, grant.stop, batch_size):
            skipped += batch.skipped
            if batch.size == 0:
                continue
            features, groups = take_groups(parts.job, batch)
            prepared = parts.test_rows.prepare(features, lease_id=0, epoch=0, create=False, clock=0)
            for lookup in parts.loaded:
                lookup.load(prepared.pulled, None)
            columns = {
                "logits": parts.runner.scores(prepared).logits,
                "labels": batch.labels,
                "weights": batch.weights,
                "truth": batch.truth,
                "ids": groups.ids,
                "has_id": groups.has_id,
            }
            kept.add(batch.size, columns)
            between()
    finally:
        parts.runner.train(True)
        release_free_heap()
    message = EvaluationScoresMsg(
        round=grant.round, unit=grant.unit, start=grant.start, stop=grant.stop, samples=kept.samples, skipped=skipped
    )
    scores = [kept.column(name, np.float32) for name in ("logits", "labels", "weights", "truth")]
    return message, [*scores, kept.column("ids", np.int64), kept.column("has_id", np.bool_)]


class KeptColumns:
    """What is kept of all batches of a range, each column in one array that the first batch makes. Arrays that every
    batch leaves behind would lie in the free part of the heap, and no tensor of the next batch would fit there."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self.samples = 0

    def add(self, size: int, columns: Mapping[str, npt.NDArray[Any] | None]) -> None:
        """Copies the columns of a batch of `size` samples; None: it has no such column."""
        for name, values in columns.items():
            if values is None:
                continue
            rows = values.reshape(size, -1)
            if name not in self._columns:
                self._columns[name] = np.empty((self._capacity, rows.shape[1]), rows.dtype)
            self._columns[name][self.samples : self.samples + size] = rows
        self.samples += size

    def column(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The values of all samples, flat and contiguous; none where no batch had the column."""
        column = self._columns.get(name)
        return np.empty(0, dtype) if column is None else np.ascontiguousarray(column[: self.samples], dtype).reshape(-1)
