"""`run_search`: begins a search or continues one, until all trials have ended or it is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elastichost.atomic_write import cause_words, is_out_of_space, space_words
from elastichost.config.job import JobSpec
from elastichost.dispatcher import run_host
from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.options import HostOptions
from elastichost.errors import PreflightError
from elastichost.resources import HostInventory
from elastichost.runs.events import JournalLine
from elastichost.search.outcome import BEST_FILE, TRIALS_FILE, SearchOutcome, TrialOutcome, outcome_of, write_outcome
from elastichost.search.settings import SearchSettings
from elastichost.search.study import open_study
from elastichost.search.trial_feed import StudyTrial, TrialFeed

__all__ = ["SearchObserver", "run_search"]


@dataclass(frozen=True)
class SearchObserver:
    """What is called while a search runs. on_status, on_event: as for `run_host`. on_trial: called with each trial that
    has ended, and all trials so far. on_problem: called with a problem that does not end the search."""

    on_status: Callable[[HostStatus], None]
    on_event: Callable[[JournalLine], None]
    on_trial: Callable[[TrialOutcome, SearchOutcome], None]
    on_problem: Callable[[str], None]


def run_search(
    settings: SearchSettings, job: JobSpec, options: HostOptions, inventory: HostInventory, observer: SearchObserver
) -> SearchOutcome:
    """Trains the trials of a search. Call it from the main thread: at the first SIGINT or SIGTERM all jobs save and
    exit, and the search can be resumed.

    job: the job without the values of a trial. options: their directory is that of the search; `goes_on` is true.
    Raises PreflightError when another process uses the directory, when the study cannot be read or written, or when
    another file of the search cannot be written. On a full disk the search continues without `trials.csv` and
    `best.toml`; PreflightError is raised if the disk is still full at the end."""
    directory = options.directory
    files = _OutcomeFiles(settings, job, observer.on_problem)

    def on_told(trials: tuple[StudyTrial, ...], number: int | None) -> None:
        outcome = outcome_of(directory, settings, trials)
        files.write(outcome)
        if number is not None:
            observer.on_trial(outcome.trials[number], outcome)

    study = partial(open_study, directory, settings.parameters, settings.objective.direction, settings.seed)
    feed = TrialFeed(settings, job, study, on_told)
    status = run_host(options, inventory, (), observer.on_status, observer.on_event, feed)
    trials = feed.finish(status.jobs)
    outcome = outcome_of(directory, settings, trials, has_given_up=feed.has_given_up)
    if files.are_behind:
        files.write(outcome, is_last=True)
    return outcome


class _OutcomeFiles:
    """Writes `trials.csv` and `best.toml`. are_behind: the last write failed, so they lack the newest trials."""

    def __init__(self, settings: SearchSettings, job: JobSpec, on_problem: Callable[[str], None]) -> None:
        self.are_behind = False
        self._settings, self._job, self._on_problem = settings, job, on_problem

    def write(self, outcome: SearchOutcome, *, is_last: bool = False) -> None:
        """Writes both files anew. A full disk is told and passed over, because the next trial that ends has them
        written again, and an end of the search would stop all its jobs. Raises PreflightError for another problem, and
        for a full disk if it `is_last`."""
        directory = Path(outcome.directory)
        try:
            write_outcome(directory, outcome, self._settings, self._job)
        except OSError as error:
            problem = f"{TRIALS_FILE} and {BEST_FILE} cannot be written to {directory}: {cause_words(error)}"
            if is_last or not is_out_of_space(error):
                raise PreflightError(
                    problem,
                    hint=f"free some space or make it writable, then continue: elastichost search --resume {directory}",
                ) from error
            if not self.are_behind:
                self._on_problem(f"{problem}. The search continues; free some space on {space_words(directory)}")
            self.are_behind = True
        else:
            self.are_behind = False
