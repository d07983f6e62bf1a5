"""One evaluation: ranges of the test set are granted to workers like leases, and their scores are collected. Pure.

Rules:

1. Every position of the test set is scored exactly once in the result. A range is pending, granted to one worker, or
   scored.
2. Scores count only from the worker that holds the range. Scores that come late or twice are dropped.
3. The result is in file order, so it does not depend on which worker scored which range.

Theory of operation. `request` grants a worker the next range, about one second of work, and at most MAX_OUTSTANDING
ranges at a time. `scored` takes the scores of a range. When no range is pending or granted, `result` joins all scores.
When a worker is killed or drained (`lost`), its ranges are pending again and are granted first. An evaluation that is
under way when the supervisor dies is lost as a whole; the resumed run begins it again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.supervisor.ledger.state import Span
from elastichost.wire.control import EvaluationGrantMsg, EvaluationScoresMsg

__all__ = ["EvaluationRound", "ScoreTable"]

FloatArray = npt.NDArray[np.float32]

MAX_OUTSTANDING = 2  # per worker: it scores one range while the next one waits
FIRST_RANGE_BATCHES = 16  # while the speed of a worker is not measured


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Scores in file order: logits and labels float32 [n, num_labels], weights and truth float32 [n] or None; groups
    int64 and has_group bool [n, group columns]."""

    logits: FloatArray
    labels: FloatArray
    weights: FloatArray | None
    truth: FloatArray | None
    groups: npt.NDArray[np.int64]
    has_group: npt.NDArray[np.bool_]
    skipped: int

    @property
    def samples(self) -> int:
        return len(self.labels)


class EvaluationRound:
    """The ranges of one evaluation and their scores. number: of this evaluation. units[i]: samples of test unit i.
    num_groups: number of group columns."""

    def __init__(
        self, number: int, units: Sequence[int], batch_size: int, num_labels: int, num_groups: int = 0
    ) -> None:
        self.number = number
        self._batch_size = batch_size
        self._num_labels, self._num_groups = num_labels, num_groups
        self._pending = deque(Span(unit, 0, samples) for unit, samples in enumerate(units) if samples)
        self._outstanding: dict[Span, ProcessId] = {}
        self._held: Counter[ProcessId] = Counter()  # of `_outstanding`, because each turn asks for every worker
        self._scores: dict[Span, ScoreTable] = {}

    @property
    def is_done(self) -> bool:
        return not (self._pending or self._outstanding)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def may_take(self, worker: ProcessId) -> bool:
        """Whether this worker gets a range if it requests one."""
        return self.has_pending and self._held[worker] < MAX_OUTSTANDING

    def request(self, worker: ProcessId, samples_per_s: float) -> EvaluationGrantMsg | None:
        """The next range for a worker: about one second of work, one batch at least. None: the worker has enough, or no
        range is pending."""
        if not self.may_take(worker):
            return None
        batches = int(samples_per_s) // self._batch_size if samples_per_s > 0 else FIRST_RANGE_BATCHES
        span = self._pending.popleft()
        middle = min(span.start + max(1, batches) * self._batch_size, span.stop)
        if middle < span.stop:
            self._pending.appendleft(Span(span.unit, middle, span.stop))
        granted = Span(span.unit, span.start, middle)
        self._outstanding[granted] = worker
        self._held[worker] += 1
        return EvaluationGrantMsg(self.number, granted.unit, granted.start, granted.stop)

    def lost(self, worker: ProcessId) -> int:
        """A worker has ended or drained: its ranges are granted again, before all others. Returns their number."""
        spans = sorted(span for span, holder in self._outstanding.items() if holder == worker)
        for span in reversed(spans):
            del self._outstanding[span]
            self._pending.appendleft(span)
        del self._held[worker]
        return len(spans)

    def scored(self, worker: ProcessId, message: EvaluationScoresMsg, frames: Sequence[memoryview]) -> bool:
        """Takes the scores of one range. Returns False for a range that this worker does not hold (late, or sent
        twice). Raises ProtocolError when the sizes of the frames do not match the counts in the message."""
        span = Span(message.unit, message.start, message.stop)
        if message.round != self.number or self._outstanding.get(span) != worker:
            return False
        self._scores[span] = self._table(worker, message, frames)
        del self._outstanding[span]
        self._held[worker] -= 1
        return True

    def _table(self, worker: ProcessId, message: EvaluationScoresMsg, frames: Sequence[memoryview]) -> ScoreTable:
        n, where = message.samples, f"scores of {worker} for [{message.start}, {message.stop}) of unit {message.unit}"
        if len(frames) != 6 or n < 0 or message.skipped < 0 or n + message.skipped != message.stop - message.start:
            raise ProtocolError(f"{where}: {n} samples, {message.skipped} skipped, {len(frames)} frames")
        logits, labels = (_floats(frame, n * self._num_labels, where) for frame in frames[:2])
        weights, truth = (_floats(frame, n, where) if frame.nbytes else None for frame in frames[2:4])
        shape, of_groups = (n, self._num_labels), (n, self._num_groups)
        groups = _checked(frames[4], np.dtype("<i8"), n * self._num_groups, where).astype(np.int64)
        has_group = _checked(frames[5], np.dtype("u1"), n * self._num_groups, where) != 0
        return ScoreTable(
            logits.reshape(shape),
            labels.reshape(shape),
            weights,
            truth,
            groups.reshape(of_groups),
            has_group.reshape(of_groups),
            message.skipped,
        )

    def result(self) -> ScoreTable:
        """All scores in file order. Call it when `is_done`."""
        tables = [self._scores[span] for span in sorted(self._scores)]
        empty = np.zeros((0, self._num_labels), dtype=np.float32)
        filled = [table for table in tables if table.samples]
        return ScoreTable(
            logits=np.concatenate([empty, *(table.logits for table in filled)]),
            labels=np.concatenate([empty, *(table.labels for table in filled)]),
            weights=_joined([table.weights for table in filled]),
            truth=_joined([table.truth for table in filled]),
            groups=np.concatenate([np.zeros((0, self._num_groups), np.int64), *(table.groups for table in filled)]),
            has_group=np.concatenate([np.zeros((0, self._num_groups), bool), *(table.has_group for table in filled)]),
            skipped=sum(table.skipped for table in tables),
        )


def _floats(frame: memoryview, count: int, where: str) -> FloatArray:
    return _checked(frame, np.dtype("<f4"), count, where).astype(np.float32, copy=True)


def _checked(frame: memoryview, kind: np.dtype[Any], count: int, where: str) -> npt.NDArray[Any]:
    if frame.nbytes != kind.itemsize * count:
        raise ProtocolError(f"{where}: a frame has {frame.nbytes} bytes instead of {kind.itemsize * count}")
    return np.frombuffer(frame, dtype=kind)


def _joined(components: Sequence[FloatArray | None]) -> FloatArray | None:
    known = [part for part in components if part is not None]
    return np.concatenate(known) if known and len(known) == len(components) else None
