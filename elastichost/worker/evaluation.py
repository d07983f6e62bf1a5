"""Scores a range of the test set with the present weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from elastichost.batches import scored_batch
from elastichost.errors import PreflightError
from elastichost.wire.codec import Frame
from elastichost.wire.control import EvaluationGrantMsg, EvaluationScoresMsg
from elastichost.worker.evaluation_groups import take_groups
from elastichost.worker.heap import release_free_heap
from elastichost.worker.setup import LeaseParts, SyncParts

__all__ = ["score_range"]


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
    columns: dict[str, list[npt.NDArray[np.float32]]] = {"logits": [], "labels": [], "weights": [], "truth": []}
    ids: list[npt.NDArray[np.int64]] = []
    has_id: list[npt.NDArray[np.bool_]] = []
    samples = skipped = 0
    batch_size = scored_batch(parts.job.train.largest_part)
    parts.runner.train(False)
    release_free_heap()
    try:
        for batch in parts.test_reader.batches(unit, grant.start, grant.stop, batch_size):
            samples, skipped = samples + batch.size, skipped + batch.skipped
            if batch.size == 0:
                continue
            features, groups = take_groups(parts.job, batch)
            prepared = parts.test_rows.prepare(features, lease_id=0, epoch=0, create=False, clock=0)
            for lookup in parts.loaded:
                lookup.load(prepared.pulled, None)
            columns["logits"].append(parts.runner.scores(prepared).logits)
            columns["labels"].append(batch.labels.reshape(-1))
            ids.append(groups.ids)
            has_id.append(groups.has_id)
            if batch.weights is not None:
                columns["weights"].append(batch.weights)
            if batch.truth is not None:
                columns["truth"].append(batch.truth)
            between()
    finally:
        parts.runner.train(True)
        release_free_heap()
    message = EvaluationScoresMsg(
        round=grant.round, unit=grant.unit, start=grant.start, stop=grant.stop, samples=samples, skipped=skipped
    )
    frames: list[Frame] = [_joined(column) for column in columns.values()]
    return message, [*frames, *(np.concatenate(part) if part else np.empty(0, np.uint8) for part in (ids, has_id))]


def _joined(parts: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    if not parts:
        return np.empty(0, dtype=np.float32)
    return np.ascontiguousarray(np.concatenate(parts), dtype=np.float32)
