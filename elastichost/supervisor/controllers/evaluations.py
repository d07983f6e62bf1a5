"""Runs evaluations: grants test ranges, takes scores, computes the figures, and checks for an early stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from elastichost.checkpoint.format import REPLACED, BestFigure
from elastichost.config.metric_names import ALWAYS, Metric, group_columns, metric_of
from elastichost.config.metric_names import is_higher_better as is_higher_better_of
from elastichost.config.sections.schema import EvaluateSection
from elastichost.plan import ProcessId
from elastichost.quality.binary import auc, evaluate_labels, probabilities
from elastichost.quality.figures import GroupedScores, known, mean_of, named_figures
from elastichost.quality.own_metrics import OwnFigure, OwnMetrics
from elastichost.runs.events import BestCheckpointWritten, EvaluationFinished, EvaluationStarted, MetricFailed
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.result import BestCheckpoint, TestFigures
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.ledger.early_stopping import EarlyStop, EarlyStopVerdict
from elastichost.supervisor.ledger.evaluation import EvaluationRound, ScoreTable
from elastichost.wire.control import EvaluationScoresMsg

__all__ = ["EvaluationController", "EvaluationState"]


@dataclass(slots=True)
class EvaluationState:
    """The open evaluation. round: its scores are being collected. own: the scores are complete, and the user's metric
    functions compute. None: not so. candidate: the last evaluation was the best one by `checkpoint.keep_best`, and its
    checkpoint is not written yet; None: not so. evaluated_at: samples that were accounted for when the last finished
    evaluation began. The work gate reads all."""

    round: EvaluationRound | None = None
    own: OwnMetrics | None = None
    candidate: BestFigure | None = None
    evaluated_at: int | None = None

    @property
    def is_open(self) -> bool:
        return self.round is not None or self.own is not None


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
        settings = run.job.evaluate
        self._metrics = job_metrics(settings)
        self._groups = group_columns(settings.metrics)
        compared, labels = settings.early_stop.metric, run.job.data.labels
        is_higher_better = bool(is_higher_better_of(compared, settings.better, labels))
        self._early_stop = EarlyStop(compared, settings.early_stop.patience, is_higher_better=is_higher_better)
        self._kept = run.job.checkpoint.keep_best
        self._is_higher_kept = bool(is_higher_better_of(self._kept, settings.better, labels))
        self._table: ScoreTable | None = None  # the complete scores, while the user's functions compute
        self._number = 0
        self._began_s = 0.0
        self.cause = ""
        self._samples = 0
        self.figures: TestFigures | None = None
        self.best: BestCheckpoint | None = None  # by `checkpoint.keep_best`

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
        return EvaluationMemory(
            self.evaluated_at, self.figures, best, without, self._early_stop.figure, self._state.candidate
        )

    def recall(self, memory: EvaluationMemory, samples: int, best: BestCheckpoint | None) -> None:
        """Continues from the evaluations of the resumed run. samples: that are accounted for now. best: the newest
        checkpoint that was the best by `checkpoint.keep_best`."""
        waits, self.best = memory.candidate, best
        # After a supervisor was killed between an evaluation and its checkpoint, the arena has the evaluated weights.
        if waits is not None and waits.samples == samples and waits.figure == self._kept:
            self._state.candidate = waits if best is None or best.samples != samples else None
        self._state.evaluated_at, self.figures = memory.evaluated_at, memory.figures
        if memory.compared in ("", self._early_stop.figure):  # a resume may compare another figure from now on
            self._early_stop.recall(memory.best, memory.without_better)

    def begin(self, samples: int, reason: str) -> None:
        """Begins an evaluation. samples: samples that are accounted for now."""
        self._number += 1
        sizes = (self._run.job.train.batch_size, self._num_labels, len(self._groups))
        self._state.round = EvaluationRound(self._number, self._units, *sizes)
        self._samples, self._began_s = samples, self._run.now_s()
        self.cause = self._run.new_cause("evaluation")
        self._run.note(EvaluationStarted(samples, reason), self.cause)
        self.serve()

    def serve(self) -> None:
        """Grants ranges to every worker that may have another one."""
        ranges = self._state.round
        if ranges is None or not ranges.has_pending or not self._may_grant():
            return
        for record in self._run.fleet.working("worker"):
            # The speed is a sum over heartbeats: it is not computed for workers that have enough.
            while ranges.may_take(record.process) and (grant := ranges.request(record.process, record.samples_per_s)):
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
        functions = [metric.function for metric in self._metrics if metric.kind == "own"]
        if not functions:
            return self._finish(table, ())
        try:
            self._state.own = self._start_own(functions, table)
        except OSError as error:
            problem = f"the scores cannot be written: {error.strerror or error}"
            return self._finish(table, [OwnFigure(name, 0, None, problem) for name in functions])
        self._table = table
        return None

    def turn(self) -> EarlyStopVerdict | None:
        """Ends the evaluation once the user's metric functions have computed; as `scored`."""
        own, table = self._state.own, self._table
        if own is None or table is None or (found := own.poll(self._run.now_s())) is None:
            return None
        self.close()
        return self._finish(table, found)

    def close(self) -> None:
        """Ends the process of the user's metric functions, if there is one."""
        if self._state.own is not None:
            self._state.own.close()
        self._state.own = self._table = None

    @property
    def candidate(self) -> BestFigure | None:
        """What the best checkpoint that is to be written next is the best by; None: there is none."""
        return self._state.candidate

    def best_figure(self, samples: int, name: str) -> BestFigure | None:
        """What a checkpoint of this name is the best by that accounts for this number of samples; None: it is not.

        A name tells the trained samples. So a checkpoint with the name of the best one has the same weights, whatever
        was skipped or quarantined since, and it replaces the best one: it keeps that figure.
        """
        candidate, best = self._state.candidate, self.best
        if candidate is not None and candidate.samples == samples:
            return candidate
        if best is not None and Path(best.path).name.removesuffix(REPLACED) == name:
            return BestFigure(best.figure, best.value, best.samples)
        return None

    def written(self, best: BestFigure, path: str) -> None:
        """The checkpoint of the best weights is written. Nothing is told when it replaces another of these weights."""
        before = self.best
        if before is not None and best == BestFigure(before.figure, before.value, before.samples):
            self.best = msgspec.structs.replace(before, path=path)
            return
        self._state.candidate = None
        self.best = BestCheckpoint(path, best.figure, best.value, best.samples)
        self._run.note(BestCheckpointWritten(path, best.figure, best.value, best.samples), self.cause)

    def give_up_best(self) -> None:
        """The checkpoint of the best weights cannot be written. Training goes on without it."""
        self._state.candidate = None

    def _better(self, figures: TestFigures) -> BestFigure | None:
        """The figure by which the best checkpoint is kept, if it is better than that of the one that is kept now."""
        value = figures.figure(self._kept) if self._kept else None
        if value is None:
            return None
        before = self.best.value if self.best is not None else None
        is_better = before is None or (value > before if self._is_higher_kept else value < before)
        return BestFigure(self._kept, value, self._samples) if is_better else None

    def _start_own(self, functions: Sequence[str], table: ScoreTable) -> OwnMetrics:
        weights = np.ones(table.samples) if table.weights is None else table.weights.astype(np.float64)
        columns = (probabilities(table.logits), table.labels.astype(np.float64), weights)
        return OwnMetrics(functions, self._run.directory.path / "own-metrics", *columns, self._run.now_s())

    def _finish(self, table: ScoreTable, own: Sequence[OwnFigure]) -> EarlyStopVerdict:
        labels = self._run.job.data.labels
        for one in own:
            if one.problem:
                self._run.note(MetricFailed(one.function, labels[one.label], one.problem), self.cause)
        self.figures, self._state.evaluated_at = figures(table, self._metrics, labels, own), self._samples
        self._state.candidate = self._better(self.figures)
        value = self.figures.figure(self._early_stop.figure)
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


def job_metrics(evaluate: EvaluateSection) -> tuple[Metric, ...]:
    """The metrics of a job, those that are always computed first."""
    found = (metric_of(text) for text in (*ALWAYS, *evaluate.metrics))
    return tuple(dict.fromkeys(metric for metric in found if metric is not None))


def figures(
    table: ScoreTable, metrics: Sequence[Metric], label_names: Sequence[str], own: Sequence[OwnFigure] = ()
) -> TestFigures:
    """The figures of an evaluation; with several labels their means. own: the answers of the user's functions."""
    reports = evaluate_labels(table.logits, table.labels, table.weights)
    truth = auc(table.labels[:, 0], table.truth, table.weights) if table.truth is not None else None
    columns = tuple(dict.fromkeys(metric.group for metric in metrics if metric.group))
    scores = GroupedScores(table.logits, table.labels, table.weights, columns, table.groups, table.has_group)
    return TestFigures(
        auc=_mean([report.auc for report in reports]),
        logloss=_mean([report.logloss for report in reports]),
        normalised_entropy=_mean([report.normalised_entropy for report in reports]),
        calibration=_mean([report.calibration for report in reports]),
        samples=table.samples,
        truth_auc=known(truth),
        auc_of_labels=tuple(known(report.auc) for report in reports) if len(reports) > 1 else (),
        metrics=named_figures(metrics, scores, reports, own, label_names),
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean_of([known(value) for value in values])
