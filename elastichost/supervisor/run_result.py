"""The result of a run: how it ended, and its figures."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from elastichost.errors import ExitCode, JobFailedError
from elastichost.runs.result import Lookups, ProcessCounts, RunOutcome, RunResult, SampleCounts
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.memory.lookups import why_incomplete
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.status import Reporter

__all__ = ["Conclusion", "conclude", "result_of"]


def result_of(
    run: RunContext,
    prepared: Preparation,
    components: Components | None,
    reporter: Reporter,
    status: RunOutcome,
    code: ExitCode,
) -> RunResult:
    """The result for `result.json`. components: None when the run ended before the model was described."""
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
    return common if components is None else _with_training(common, components)


def _with_training(result: RunResult, components: Components) -> RunResult:
    ledger, newest = components.leases.ledger, components.checkpoints.newest
    return msgspec.structs.replace(
        result,
        samples=SampleCounts(ledger.samples_planned, ledger.trained, ledger.skipped, ledger.samples_quarantined),
        lookups=components.lookups.total(),
        test=components.evaluations.figures,
        samples_per_s=components.leases.samples_per_s,
        arena_bytes=max(result.arena_bytes, components.arena_bytes()),
        checkpoint=str(newest) if newest is not None else "",
        best=components.evaluations.best,
        quarantined=ledger.quarantined,
    )


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a run ended. message: what is wrong with the trained model, for the user; "": nothing is."""

    status: RunOutcome
    code: ExitCode
    message: str = ""


def conclude(ledger: Ledger, lookups: Lookups, most_without_row: float, *, is_stopped: bool) -> Conclusion:
    """Judges a run that ended without an error. is_stopped: because it was asked to stop. Raises JobFailedError when
    the ledger has fewer or more samples than planned."""
    if is_stopped:
        return Conclusion("stopped", ExitCode.STOPPED_RESUMABLE)
    if ledger.samples_accounted != ledger.samples_planned:
        raise JobFailedError(
            f"the ledger accounts for {ledger.samples_accounted} samples, but {ledger.samples_planned} were planned",
            hint="this is a bug in elastichost; please report it with the run directory, whose journal has every lease",
        )
    incomplete = why_incomplete(lookups, most_without_row)
    if ledger.quarantined:
        return Conclusion("quarantined", ExitCode.JOB_FAILED, incomplete)
    if incomplete:
        return Conclusion("incomplete", ExitCode.JOB_FAILED, incomplete)
    return Conclusion("done", ExitCode.DONE)
