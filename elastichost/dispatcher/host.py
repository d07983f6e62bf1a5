"""`run_host`: opens a host for many jobs, works until they are done or it is asked to stop, and closes everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastichost.config.job import JobSpec
from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.loop import HostLoop
from elastichost.dispatcher.options import HostOptions
from elastichost.resources import HostInventory
from elastichost.runs.events import JournalLine

__all__ = ["Submission", "run_host"]


@dataclass(frozen=True, slots=True)
class Submission:
    """working_directory: from which the job's modules are imported. name: wanted for it; "": the job's own."""

    spec: JobSpec
    working_directory: Path
    name: str = ""
    weight: float = 1.0


def run_host(
    options: HostOptions,
    inventory: HostInventory,
    submissions: Sequence[Submission] = (),
    on_status: Callable[[HostStatus], None] = lambda status: None,
    on_event: Callable[[JournalLine], None] = lambda line: None,
) -> HostStatus:
    """Returns the last status. Call it from the main thread: the first SIGINT or SIGTERM has all jobs saved, the second
    kills them. inventory: what jobs may use. on_event: for every line of the journal.

    Raises PreflightError when another host works in the directory, or the libraries cannot be imported."""
    with HostLoop(options, inventory, on_status, on_event) as loop:
        for one in submissions:
            loop.submit(one.spec, one.working_directory, one.name, one.weight)
        return loop.run()
