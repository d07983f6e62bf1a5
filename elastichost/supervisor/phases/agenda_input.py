"""The snapshot of a run for the agenda, and the word for its state on screens."""

from __future__ import annotations

from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.agenda import Situation

__all__ = ["situation_of", "word_of"]


def situation_of(run: RunContext, components: Components, *, is_stopping: bool) -> Situation:
    """The snapshot for `core.agenda.next_step`. is_stopping: the run was asked to stop."""
    ledger, fleet = components.leases.ledger, run.fleet
    return Situation(
        is_stopping=is_stopping,
        is_epoch_done=ledger.is_epoch_done,
        is_finished=ledger.is_finished,
        has_outstanding=ledger.has_outstanding,
        samples=ledger.samples_accounted,
        live_workers=sum(record.state.value != "drained" for record in fleet.live("worker")),
        unsettled_workers=components.leases.unsettled,
        servers_ready=components.sharding.is_published and components.sharding.may_cut,
        checkpoint_open=components.checkpoints.is_open,
        evaluation_open=components.evaluations.is_open,
        best_waits=components.evaluations.candidate is not None,
        checkpointed_at=components.checkpoints.checkpointed_at,
        evaluated_at=components.evaluations.evaluated_at,
        checkpoint_not_before_s=components.checkpoints.not_before_s,
        retry_not_before_s=components.checkpoints.retry_not_before_s,
    )


def word_of(components: Components, before: str, *, is_stopping: bool) -> str:
    """One word for what the run does, for status.json and screens. before: the word of the turn before."""
    if is_stopping:
        return "stopping"
    if components.checkpoints.is_open:
        return "checkpointing"
    if components.evaluations.is_open:
        return "evaluating"
    return "training" if components.leases.ledger.has_outstanding else before
