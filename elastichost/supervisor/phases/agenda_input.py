"""A run as the agenda sees it, and as people are told of it."""

from __future__ import annotations

from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.core.agenda import Situation

__all__ = ["situation_of", "word_of"]


def situation_of(run: Run, parts: Components, *, is_stopping: bool) -> Situation:
    """is_stopping: the run was asked to."""
    ledger, fleet = parts.training.ledger, run.fleet
    return Situation(
        is_stopping=is_stopping,
        is_epoch_done=ledger.is_epoch_done,
        is_finished=ledger.is_finished,
        has_outstanding=ledger.has_outstanding,
        samples=ledger.samples_accounted,
        live_workers=sum(record.state.value != "drained" for record in fleet.live("worker")),
        unsettled_workers=parts.training.unsettled,
        servers_ready=parts.roster.is_published and parts.roster.may_cut,
        checkpoint_open=parts.checkpointer.is_open,
        evaluation_open=parts.judge.is_open,
        checkpointed_at=parts.checkpointer.checkpointed_at,
        evaluated_at=parts.judge.evaluated_at,
        checkpoint_not_before_s=parts.checkpointer.not_before_s,
        retry_not_before_s=parts.checkpointer.retry_not_before_s,
    )


def word_of(parts: Components, before: str, *, is_stopping: bool) -> str:
    """What the run does, for people. before: the word of the turn before."""
    if is_stopping:
        return "stopping"
    if parts.checkpointer.is_open:
        return "checkpointing"
    if parts.judge.is_open:
        return "evaluating"
    return "training" if parts.training.ledger.has_outstanding else before
