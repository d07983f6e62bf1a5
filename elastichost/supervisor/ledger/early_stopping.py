"""Early stopping: whether training ends because the test metric has not improved for several evaluations. Pure."""

from __future__ import annotations

import math

import msgspec

__all__ = ["EarlyStop", "EarlyStopVerdict"]


class EarlyStopVerdict(msgspec.Struct, frozen=True):
    """stop: whether training ends. best: the best value so far; None: there is none. reason: a text for the journal,
    also when training continues."""

    stop: bool
    best: float | None
    reason: str


class EarlyStop:
    """Stops after `patience` evaluations in a row without a better figure; patience 0 never stops. figure: its name.
    is_higher_better: whether a higher value is better."""

    def __init__(self, figure: str, patience: int, *, is_higher_better: bool) -> None:
        self.figure, self._is_higher_better = figure, is_higher_better
        self._name = {"auc": "AUC", "logloss": "log loss"}.get(figure, figure)
        self._patience = patience
        self._best: float | None = None
        self._without = 0

    @property
    def memory(self) -> tuple[float | None, int]:
        """(best value so far, evaluations in a row without a better one), which a resumed run continues from."""
        return self._best, self._without

    def recall(self, best: float | None, without: int) -> None:
        """Continues from the `memory` of an earlier supervisor."""
        self._best, self._without = best, without

    def observe(self, value: float | None) -> EarlyStopVerdict:
        """Takes the metric of one evaluation. value: None or NaN where the metric is not defined (AUC of a test set
        whose labels are all equal); such an evaluation is not counted."""
        if value is None or math.isnan(value):
            why = ": the test set has labels of one class only" if self.figure == "auc" else " on this test set"
            return EarlyStopVerdict(False, self._best, f"{self._name} is not defined{why}")
        if self._best is None or self._is_better(value, self._best):
            before, self._best, self._without = self._best, value, 0
            first = before is None
            said = f"{self._name} {value:.5f}" + ("" if first else f", better than the best before ({before:.5f})")
            return EarlyStopVerdict(False, value, said)
        self._without += 1
        said = f"{self._name} {value:.5f}, not better than {self._best:.5f} ({self._without} in a row)"
        stop = 0 < self._patience <= self._without
        return EarlyStopVerdict(stop, self._best, said + (": early stop" if stop else ""))

    def _is_better(self, value: float, best: float) -> bool:
        return value > best if self._is_higher_better else value < best
