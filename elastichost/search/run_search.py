"""`run_search`: begins a search or continues one, until all trials have ended or it is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from elastichost.config.job import JobSpec
from elastichost.dispatcher import run_host
from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.options import HostOptions
from elastichost.resources import HostInventory
from elastichost.runs.events import JournalLine
from elastichost.search.outcome import SearchOutcome, TrialOutcome, outcome_of, write_outcome
from elastichost.search.settings import SearchSettings
from elastichost.search.study import open_study
from elastichost.search.trial_feed import StudyTrial, TrialFeed

__all__ = ["SearchObserver", "run_search"]


@dataclass(frozen=True)
class SearchObserver:
    """What is called while a search runs. on_status, on_event: as for `run_host`. on_trial: called with each trial that
    has ended, and all trials so far."""

    on_status: Callable[[HostStatus], None]
    on_event: Callable[[JournalLine], None]
    on_trial: Callable[[TrialOutcome, SearchOutcome], None]


def run_search(
    settings: SearchSettings, job: JobSpec, options: HostOptions, inventory: HostInventory, observer: SearchObserver
) -> SearchOutcome:
    """Trains the trials of a search. Call it from the main thread: at the first SIGINT or SIGTERM all jobs save and
    exit, and the search can be resumed.

    job: the job without the values of a trial. options: their directory is that of the search; `goes_on` is true.
    Raises PreflightError when another process uses the directory, or when the study cannot be read or written."""
    directory = options.directory

    def on_told(trials: tuple[StudyTrial, ...], number: int | None) -> None:
        outcome = outcome_of(directory, settings, trials)
        write_outcome(directory, outcome, settings, job)
        if number is not None:
            observer.on_trial(outcome.trials[number], outcome)

    study = partial(open_study, directory, settings.parameters, settings.objective.direction, settings.seed)
    feed = TrialFeed(settings, job, study, on_told)
    status = run_host(options, inventory, (), observer.on_status, observer.on_event, feed)
    trials = feed.finish(status.jobs)
    return outcome_of(directory, settings, trials, has_given_up=feed.has_given_up)
