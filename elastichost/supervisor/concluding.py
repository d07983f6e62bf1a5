"""What a run that came to its end is: done, or done but for something. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.errors import ExitCode, JobFailedError
from elastichost.runs.result import Lookups, RunOutcome
from elastichost.supervisor.ledger import Ledger
from elastichost.supervisor.lookups import why_incomplete

__all__ = ["Conclusion", "conclude"]


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
