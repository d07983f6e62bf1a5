"""Runs evaluations: grants test ranges, takes scores, computes the figures, and checks for an early stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elastichost.plan import ProcessId
from elastichost.quality import auc, evaluate_labels
from elastichost.runs.events import EvaluationFinished, EvaluationStarted
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.result import TestFigures
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.ledger.early_stopping import EarlyStop, EarlyStopVerdict
from elastichost.supervisor.ledger.evaluation import EvaluationRound, ScoreTable
from elastichost.wire.control import EvaluationScoresMsg

__all__ = ["EvaluationController", "EvaluationState"]


@dataclass(slots=True)
class EvaluationState:
    """The open evaluation; None: there is none. evaluated_at: samples that were accounted for when the last finished
    evaluation began. The work gate reads both."""

    round: EvaluationRound | None = None
    evaluated_at: int | None = None

    @property
    def is_open(self) -> bool:
        return self.round is not None


class EvaluationController:
    """Runs one evaluation at a time. units[i]: samples of test unit i; empty: the job has no test set."""

    def __init__(
        self,
        run: RunContext,
        state: EvaluationState,
        units: Sequence[int],
        num_labels: int,
        may_grant: Callable[[], bool],
    ) -> None:
        self._run, self._state = run, state
        self._units = tuple(units)
        self._num_labels = num_labels
        self._may_grant = may_grant
        settings = run.job.evaluate.early_stop
        self._early_stop = EarlyStop(settings.metric, settings.patience)
        self._number = 0
        self._began_s = 0.0
        self.cause = ""
        self._samples = 0
        self.figures: TestFigures | None = None

    @property
    def has_test(self) -> bool:
        return sum(self._units) > 0

    @property
    def is_open(self) -> bool:
        return self._state.is_open

    @property
    def evaluated_at(self) -> int | None:
        return self._state.evaluated_at

    @property
    def memory(self) -> EvaluationMemory:
        best, without = self._early_stop.memory
        return EvaluationMemory(self.evaluated_at, self.figures, best, without)

    def recall(self, memory: EvaluationMemory) -> None:
        """Continues from the evaluations of the resumed run."""
        self._state.evaluated_at, self.figures = memory.evaluated_at, memory.figures
        self._early_stop.recall(memory.best, memory.without_better)

    def begin(self, samples: int, reason: str) -> None:
        """Begins an evaluation. samples: samples that are accounted for now."""
        self._number += 1
        self._state.round = EvaluationRound(self._number, self._units, self._run.job.train.batch_size, self._num_labels)
        self._samples, self._began_s = samples, self._run.now_s()
        self.cause = self._run.new_cause("evaluation")
        self._run.note(EvaluationStarted(samples, reason), self.cause)
        self.serve()

    def serve(self) -> None:
        """Grants ranges to every worker that may have another one."""
        if self._state.round is None or not self._may_grant():
            return
        for record in self._run.fleet.working("worker"):
            while (grant := self._state.round.request(record.process, record.samples_per_s)) is not None:
                self._run.send(record.process, grant)

    def lost(self, process: ProcessId) -> None:
        """A worker has ended or drained: other workers score its ranges."""
        if self._state.round is not None:
            self._state.round.lost(process)
            self.serve()

    def scored(
        self, record: ProcessRecord, message: EvaluationScoresMsg, frames: Sequence[memoryview]
    ) -> EarlyStopVerdict | None:
        """Takes the scores of a range. The last range ends the evaluation and returns the verdict on an early stop;
        None: the evaluation goes on."""
        if self._state.round is None or not self._state.round.scored(record.process, message, frames):
            return None
        if not self._state.round.is_done:
            self.serve()
            return None
        table, self._state.round = self._state.round.result(), None
        self.figures, self._state.evaluated_at = figures(table), self._samples
        value = self.figures.auc if self._early_stop.metric == "auc" else self.figures.logloss
        verdict = self._early_stop.observe(value)
        others = f"; log loss {self.figures.logloss:.5f}" if value is None and self.figures.logloss is not None else ""
        self._run.note(
            EvaluationFinished(
                samples=self._samples,
                test_samples=table.samples,
                seconds=self._run.now_s() - self._began_s,
                auc=self.figures.auc,
                logloss=self.figures.logloss,
                truth_auc=self.figures.truth_auc,
                memory=self.memory,  # for a resumed run
                reason=verdict.reason + others,
            ),
            self.cause,
        )
        return verdict


def figures(table: ScoreTable) -> TestFigures:
    """The figures of an evaluation; with several labels their means."""
    reports = evaluate_labels(table.logits, table.labels, table.weights)
    truth = auc(table.labels[:, 0], table.truth, table.weights) if table.truth is not None else None
    return TestFigures(
        auc=_mean([report.auc for report in reports]),
        logloss=_mean([report.logloss for report in reports]),
        normalised_entropy=_mean([report.normalised_entropy for report in reports]),
        calibration=_mean([report.calibration for report in reports]),
        samples=table.samples,
        truth_auc=_known(truth),
        auc_of_labels=tuple(_known(report.auc) for report in reports) if len(reports) > 1 else (),
    )


def _mean(values: list[float]) -> float | None:
    return _known(sum(values) / len(values)) if values else None


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
