"""The study of Optuna in a file of the search directory: suggests values, and remembers how trials ended.

The file is a sqlite database, because its writes are complete or absent after a kill; `optuna-dashboard` shows it while
the search runs. Only the process that holds the lock of the search directory writes to it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.trial import Trial
from sqlalchemy.exc import SQLAlchemyError

from elastichost.errors import PreflightError
from elastichost.search.objective import Direction
from elastichost.search.space import Parameter
from elastichost.search.trial_feed import StudyTrial
from elastichost.search.trials import RANDOM_TRIALS

__all__ = ["STUDY_FILE", "SearchStudy", "open_study"]

STUDY_FILE = "study.db"
STUDY_NAME = "search"
WHY, RUN_DIR = "why", "run_dir"  # attributes of a trial


class SearchStudy:
    """The study of one search. Each method raises PreflightError when the file cannot be read or written."""

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.RDBStorage,
        path: Path,
        parameters: Sequence[Parameter],
        seed: int,
    ) -> None:
        self._study, self._storage, self._path, self._parameters, self._seed = study, storage, path, parameters, seed
        self._open: dict[int, Trial] = {}  # trials that Optuna was not told of

    def trials(self) -> tuple[StudyTrial, ...]:
        """All trials, by number. A trial that a kill has interrupted may lack values; `complete` adds them."""
        with _reported(self._path):
            found = self._study.get_trials(deepcopy=False)
        return tuple(
            StudyTrial(
                number=one.number,
                texts=self._texts(one.params),
                is_told=one.state.is_finished(),
                value=one.value if one.state == optuna.trial.TrialState.COMPLETE else None,
                run_dir=str(one.user_attrs.get(RUN_DIR, "")),
                why=str(one.user_attrs.get(WHY, "")),
            )
            for one in found
        )

    def ask(self) -> StudyTrial:
        """A new trial with its values."""
        with _reported(self._path):
            number = len(self._study.get_trials(deepcopy=False))
            self._study.sampler = self._sampler(number)
            trial = self._study.ask()
            if trial.number != number:
                raise PreflightError(
                    f"another process adds trials to {self._path}",
                    hint=f"end it, and remove its trials; then elastichost search --resume {self._path.parent}",
                )
            return self._completed(trial)

    def complete(self, number: int) -> StudyTrial:
        """A trial of an earlier process that ended before it told how the trial ended. Values that are missing are
        drawn as they would have been."""
        with _reported(self._path):
            frozen = self._study.get_trials(deepcopy=False)[number]
            self._study.sampler = self._sampler(number)
            return self._completed(Trial(self._study, frozen._trial_id))  # Optuna has no public way to the id

    def tell(self, number: int, value: float | None, why: str, run_dir: str) -> None:
        """Tells Optuna how a trial ended. value: the metric; None: it failed."""
        with _reported(self._path):
            trial = self._open.pop(number)
            for key, text in ((WHY, why), (RUN_DIR, run_dir)):
                if text:
                    trial.set_user_attr(key, text)
            if value is None:
                self._study.tell(number, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(number, value)

    def close(self) -> None:
        """Closes the file. All that was told is in it already."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _completed(self, trial: Trial) -> StudyTrial:
        for parameter in self._parameters:
            _suggest(trial, parameter)
        self._open[trial.number] = trial
        return StudyTrial(trial.number, self._texts(trial.params))

    def _texts(self, values: dict[str, Any]) -> tuple[str, ...]:
        """The values in the order of the parameters, as `--set` takes them."""
        return tuple(one.text(values[one.path]) for one in self._parameters if one.path in values)

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """A sampler with random numbers of this trial's own. So a resumed search does not repeat the random numbers of
        the search before the kill, and the random trials of a seed have the same values in any order of events."""
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)


def open_study(directory: Path, parameters: Sequence[Parameter], direction: Direction, seed: int) -> SearchStudy:
    """Opens the study of a search, and creates it if it is missing. Raises PreflightError."""
    path = directory / STUDY_FILE
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # elastichost shows the trials
    with _reported(path):
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        study = optuna.create_study(storage=storage, study_name=STUDY_NAME, direction=direction, load_if_exists=True)
    return SearchStudy(study, storage, path, parameters, seed)


def _suggest(trial: Trial, parameter: Parameter) -> None:
    """Draws the value of a parameter, unless the trial has one."""
    path, low, high = parameter.path, parameter.low, parameter.high
    if parameter.kind == "choice":
        trial.suggest_categorical(path, parameter.choices)
    elif parameter.kind == "int":
        trial.suggest_int(path, int(low), int(high))
    else:
        trial.suggest_float(path, low, high, log=parameter.kind == "log")


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise PreflightError(
            f"{path} could not be read or written: {error.__cause__ or error}",
            hint=f"free some space or repair the file, then continue: elastichost search --resume {path.parent}",
        ) from error
