"""A run in short: as the agenda sees it and as people are told of it; how it ended, and what it came to, as a
result."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from elastichost.errors import ExitCode, JobFailedError
from elastichost.runs.result import Lookups, ProcessCounts, RunOutcome, RunResult, SampleCounts
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.core.agenda import Situation
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.memory.lookups import why_incomplete
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.status import Reporter

__all__ = ["Conclusion", "conclude", "reckon", "situation_of", "word_of"]


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


def reckon(
    run: Run, prepared: Preparation, parts: Components | None, reporter: Reporter, status: RunOutcome, code: ExitCode
) -> RunResult:
    """`parts` None: it ended before the model was known."""
    common = RunResult(
        status=status,
        exit_code=int(code),
        run_dir=str(run.directory.path),
        samples=SampleCounts(prepared.train.samples * run.job.train.epochs, 0, 0, 0),
        test=None,
        samples_per_s=0.0,
        wall_s=reporter.elapsed_s,
        processes=ProcessCounts(*run.size, run.restarts),
        arena_bytes=reporter.arena_bytes,
        peak_bytes=reporter.peak_bytes,
        peak_workers=reporter.peak_workers,
        epochs=run.job.train.epochs,
        torn_batches=run.torn_batches,
        started_from=run.started_from,
        rolled_back=tuple(run.roll_backs),
        lost_hosts=tuple(run.lost_hosts),
    )
    return common if parts is None else _with_training(common, parts)


def _with_training(result: RunResult, parts: Components) -> RunResult:
    ledger, newest = parts.training.ledger, parts.checkpointer.newest
    return msgspec.structs.replace(
        result,
        samples=SampleCounts(ledger.samples_planned, ledger.trained, ledger.skipped, ledger.samples_quarantined),
        lookups=parts.lookups.total(),
        test=parts.judge.figures,
        samples_per_s=parts.training.samples_per_s,
        arena_bytes=max(result.arena_bytes, parts.arena_bytes()),
        checkpoint=str(newest) if newest is not None else "",
        quarantined=ledger.quarantined,
    )


@dataclass(frozen=True, slots=True)
class Conclusion:
    """message: what is wrong, for people; "" for nothing."""

    status: RunOutcome
    code: ExitCode
    message: str = ""


def conclude(ledger: Ledger, lookups: Lookups, most_without_row: float, *, is_stopped: bool) -> Conclusion:
    """is_stopped: it was asked to. Raises JobFailedError when samples are missing."""
    if is_stopped:
        return Conclusion("stopped", ExitCode.STOPPED_RESUMABLE)
    if ledger.samples_accounted != ledger.samples_planned:
        raise JobFailedError(
            f"{ledger.samples_accounted} samples are accounted for, {ledger.samples_planned} were planned",
            hint="this is a fault of elastichost; the journal holds every lease",
        )
    incomplete = why_incomplete(lookups, most_without_row)
    if ledger.quarantined:
        return Conclusion("quarantined", ExitCode.JOB_FAILED, incomplete)
    if incomplete:
        return Conclusion("incomplete", ExitCode.JOB_FAILED, incomplete)
    return Conclusion("done", ExitCode.DONE)
