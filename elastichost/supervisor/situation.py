"""A run as the agenda sees it."""

from __future__ import annotations

from elastichost.supervisor.agenda import Situation
from elastichost.supervisor.parts import Parts
from elastichost.supervisor.run import Run

__all__ = ["situation_of"]


def situation_of(run: Run, parts: Parts, *, is_stopping: bool) -> Situation:
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
