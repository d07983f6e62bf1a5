"""Workers get work unless one of five conditions forbids it; each condition is tested alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.checkpoint.format import BestFigure
from elastichost.supervisor.controllers.checkpoints import CheckpointState
from elastichost.supervisor.controllers.evaluations import EvaluationState
from elastichost.supervisor.controllers.work_gate import WorkGate


class Stage:
    """A work gate over a run in which no condition forbids work."""

    def __init__(self, mode: str = "async", *, has_test: bool = True, keep_best: str = "") -> None:
        self.run: Any = SimpleNamespace(
            job=SimpleNamespace(
                train=SimpleNamespace(mode=mode),
                evaluate=SimpleNamespace(every_samples=1000),
                checkpoint=SimpleNamespace(keep_best=keep_best),
            ),
            journal=SimpleNamespace(problem=""),
        )
        self.ledger: Any = SimpleNamespace(samples_accounted=0)
        self.sharding: Any = SimpleNamespace(was_published=True)
        self.checkpoint, self.evaluation = CheckpointState(), EvaluationState()
        self.is_stopping = False
        self.gate = WorkGate(
            self.run,
            self.ledger,
            self.sharding,
            self.checkpoint,
            self.evaluation,
            lambda: self.is_stopping,
            has_test=has_test,
        )

    def hold(self) -> None:
        """Opens a checkpoint that holds the workers."""
        self.checkpoint.open = SimpleNamespace(cut=SimpleNamespace(holds_workers=True))  # type: ignore[assignment]


def test_workers_may_train_and_evaluate_when_no_condition_forbids_it() -> None:
    stage = Stage()
    assert stage.gate.may_train() and stage.gate.may_evaluate()


def test_no_work_while_a_checkpoint_holds_the_workers() -> None:
    stage = Stage()
    stage.hold()
    assert not stage.gate.may_train() and not stage.gate.may_evaluate()


def test_no_work_when_the_run_stops_or_before_the_first_shard_map_is_published() -> None:
    stage = Stage()
    stage.is_stopping = True
    assert not stage.gate.may_train() and not stage.gate.may_evaluate()
    stage.is_stopping, stage.sharding.was_published = False, False
    assert not stage.gate.may_train() and not stage.gate.may_evaluate()


def test_without_space_for_the_journal_no_leases_are_granted_and_evaluations_continue() -> None:
    stage = Stage()
    stage.run.journal.problem = "No space left on device"
    assert not stage.gate.may_train() and stage.gate.may_evaluate()


@pytest.mark.parametrize(
    ("mode", "has_test", "keep_best", "waits"),
    [("sync", True, "", True), ("sync", False, "", False), ("async", True, "", False), ("async", True, "auc", True)],
)
def test_workers_finish_their_leases_before_an_evaluation(
    mode: str, has_test: bool, keep_best: str, waits: bool
) -> None:
    stage = Stage(mode, has_test=has_test, keep_best=keep_best)
    stage.ledger.samples_accounted = 999
    assert stage.gate.may_train()
    stage.ledger.samples_accounted = 1000
    assert stage.gate.may_train() is not waits and stage.gate.may_evaluate()
    stage.evaluation.evaluated_at = 1000
    assert stage.gate.may_train()
    stage.evaluation.round = SimpleNamespace()  # type: ignore[assignment]
    assert stage.gate.may_train() is not waits


def test_no_weight_changes_between_the_best_evaluation_and_its_checkpoint() -> None:
    stage = Stage(keep_best="auc")
    stage.ledger.samples_accounted = stage.evaluation.evaluated_at = 1000
    stage.evaluation.candidate = BestFigure("auc", 0.8, 1000)
    assert not stage.gate.may_train() and stage.gate.may_evaluate()
    stage.evaluation.candidate = None
    assert stage.gate.may_train()
