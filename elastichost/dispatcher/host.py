"""`run_host`: runs a dispatcher until its jobs are done or it is asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.loop import HostLoop
from elastichost.dispatcher.options import HostOptions, JobFeed, Submission
from elastichost.resources import HostInventory
from elastichost.runs.events import JournalLine

__all__ = ["Submission", "run_host"]


def run_host(
    options: HostOptions,
    inventory: HostInventory,
    submissions: Sequence[Submission] = (),
    on_status: Callable[[HostStatus], None] = lambda status: None,
    on_event: Callable[[JournalLine], None] = lambda line: None,
    feed: JobFeed | None = None,
) -> HostStatus:
    """Trains the submitted jobs and returns the last status. Call it from the main thread: at the first SIGINT or
    SIGTERM all jobs save and exit; at another SIGINT they are killed.

    inventory: the resources that jobs may use. on_status: called once a second. on_event: called with every line of the
    journal. feed: submits more jobs while others train. Raises PreflightError when another dispatcher uses the
    directory, or when the libraries cannot be imported; ConfigError for a submission with an invalid name."""
    with HostLoop(options, inventory, on_status, on_event, feed=feed) as loop:
        for one in submissions:
            loop.submit(one.spec, one.working_directory, one.name, one.weight)
        return loop.run()
