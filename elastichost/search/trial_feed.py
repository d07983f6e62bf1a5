"""Gives the trials of a search to the dispatcher, and their metrics to Optuna: does what `trials` decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastichost.config.job import JobSpec
from elastichost.dispatcher.facts import JobStatus
from elastichost.dispatcher.options import Submission
from elastichost.errors import ConfigError, PreflightError
from elastichost.runs.result import read_result
from elastichost.search.objective import value_of
from elastichost.search.settings import SearchSettings, job_of_trial
from elastichost.search.trials import AskTrial, SubmitTrial, TellTrial, TrialJob, Trials, is_job_name, job_name

__all__ = ["StudyTrial", "TrialFeed", "TrialStudy"]


@dataclass(frozen=True, slots=True)
class StudyTrial:
    """A trial in the study. texts: its values in the order of the parameters. is_told: Optuna knows how it ended.
    value: the metric; None: it failed, or has not ended. why: the reason of a failure."""

    number: int
    texts: tuple[str, ...]
    is_told: bool = False
    value: float | None = None
    run_dir: str = ""
    why: str = ""


class TrialStudy(Protocol):
    """The study, as `study.SearchStudy` keeps it in a file."""

    def trials(self) -> tuple[StudyTrial, ...]: ...

    def ask(self) -> StudyTrial: ...

    def complete(self, number: int) -> StudyTrial: ...

    def tell(self, number: int, value: float | None, why: str, run_dir: str) -> None: ...

    def close(self) -> None: ...


class TrialFeed:
    """Feeds a dispatcher with the trials of a search (`dispatcher.options.JobFeed`).

    open_study: called in the first turn of the dispatcher, when it has locked the directory. on_told: called with all
    trials whenever Optuna was told of one, which is the last argument; and once before that with None."""

    def __init__(
        self,
        settings: SearchSettings,
        job: JobSpec,
        open_study: Callable[[], TrialStudy],
        on_told: Callable[[tuple[StudyTrial, ...], int | None], None],
    ) -> None:
        self._settings, self._job, self._open_study, self._on_told = settings, job, open_study, on_told
        self._core = Trials(settings.trials)
        self._study: TrialStudy | None = None
        self._texts: dict[int, tuple[str, ...]] = {}
        self._run_dirs: dict[int, str] = {}
        self._numbers: dict[str, int] = {}  # by the names of their jobs, until their end is known

    @property
    def is_over(self) -> bool:
        return self._core.is_over

    @property
    def has_given_up(self) -> bool:
        """Whether the search ended early because its first trials all failed."""
        return self._core.has_given_up

    def take(self, jobs: tuple[JobStatus, ...]) -> Sequence[Submission]:
        """Tells Optuna of the trials that have ended, and returns the jobs of trials that the dispatcher does not have.
        Raises PreflightError when the study cannot be read or written."""
        study = self._begun(jobs)
        self._core.seen(tuple(self._ended_or_waiting(jobs)))
        submissions: list[Submission] = []
        while effects := self._core.decide():
            for effect in effects:
                match effect:
                    case TellTrial():
                        self._tell(study, effect)
                    case SubmitTrial(number):
                        submissions += self._submission(number)
                    case AskTrial():
                        self._asked(study.ask())
        return submissions

    def finish(self, jobs: tuple[JobStatus, ...]) -> tuple[StudyTrial, ...]:
        """Tells Optuna of the trials that have ended since the last turn of the dispatcher, and closes the study.
        Returns all trials."""
        study = self._begun(jobs)
        self._core.seen(tuple(self._ended_or_waiting(jobs)))
        for effect in self._core.endings():
            self._tell(study, effect)
        trials = study.trials()
        study.close()
        return trials

    def _begun(self, jobs: Sequence[JobStatus]) -> TrialStudy:
        if self._study is None:
            self._study = self._open_study()
            trials = self._study.trials()
            _check_known(jobs, trials)
            for trial in trials:
                if trial.is_told:
                    self._core.restored(trial.number, trial.value)
                else:
                    self._asked(self._study.complete(trial.number))
            self._on_told(self._study.trials(), None)
        return self._study

    def _asked(self, trial: StudyTrial) -> None:
        self._core.asked(trial.number)
        self._texts[trial.number] = trial.texts
        self._numbers[job_name(trial.number)] = trial.number

    def _ended_or_waiting(self, jobs: Sequence[JobStatus]) -> Iterator[TrialJob]:
        for job in jobs:
            number = self._numbers.get(job.job)
            if number is not None:
                self._run_dirs[number] = job.run_dir
                yield job_of(job, number, self._settings.objective.metric)

    def _submission(self, number: int) -> Iterator[Submission]:
        name = job_name(number)
        try:
            spec = job_of_trial(self._job, self._settings, self._texts[number], name)
        except ConfigError as error:
            self._core.refused(number, "; ".join(error.problems) or error.message)
            return
        self._core.submitted(number)
        yield Submission(spec, Path(self._settings.working_directory), name)

    def _tell(self, study: TrialStudy, ending: TellTrial) -> None:
        study.tell(ending.number, ending.value, ending.why, self._run_dirs.get(ending.number, ""))
        self._core.told(ending.number)
        del self._numbers[job_name(ending.number)]
        self._on_told(study.trials(), ending.number)


def _check_known(jobs: Sequence[JobStatus], trials: Sequence[StudyTrial]) -> None:
    """Raises PreflightError for jobs of trials that the study does not know: it was lost, and new trials would get
    their names."""
    known = {job_name(trial.number) for trial in trials}
    lost = [job.job for job in jobs if is_job_name(job.job) and job.job not in known]
    if lost:
        raise PreflightError(
            f"the study of this search knows {len(known)} trials, and not {lost[0]}, which was trained",
            hint="put back the file study.db of the search directory, or begin a new search",
        )


def job_of(job: JobStatus, number: int, metric: str) -> TrialJob:
    """What the dispatcher and the result of its run say of the job of a trial."""
    if job.state != "done":
        return TrialJob(number, job.state, why=job.why)
    result = read_result(Path(job.run_dir))
    value = value_of(result, metric) if result is not None else None
    return TrialJob(number, job.state, value, "" if value is not None else f"its result has no {metric}")
