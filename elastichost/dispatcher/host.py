"""`run_host`: runs a dispatcher until its jobs are done or it is asked to stop."""

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
    """A job to train. working_directory: the directory from which its modules are imported. name: the wanted name in
    the queue; "": the name in the job file. weight: a job with weight 2 counts like two jobs with weight 1."""

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
    """Trains the submitted jobs and returns the last status. Call it from the main thread: at the first SIGINT or
    SIGTERM all jobs save and exit; at another SIGINT they are killed.

    inventory: the resources that jobs may use. on_status: called once a second. on_event: called with every line of the
    journal. Raises PreflightError when another dispatcher uses the directory, or when the libraries cannot be
    imported; ConfigError for a submission with an invalid name."""
    with HostLoop(options, inventory, on_status, on_event) as loop:
        for one in submissions:
            loop.submit(one.spec, one.working_directory, one.name, one.weight)
        return loop.run()
