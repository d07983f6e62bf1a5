"""A run as it stands, as a result."""

from __future__ import annotations

import msgspec

from elastichost.errors import ExitCode
from elastichost.runs.result import ProcessCounts, RunOutcome, RunResult, SampleCounts
from elastichost.supervisor.parts import Parts
from elastichost.supervisor.preflight import Preparation
from elastichost.supervisor.run import Run
from elastichost.supervisor.status import Reporter

__all__ = ["reckon"]


def reckon(
    run: Run, prepared: Preparation, parts: Parts | None, reporter: Reporter, status: RunOutcome, code: ExitCode
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


def _with_training(result: RunResult, parts: Parts) -> RunResult:
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
