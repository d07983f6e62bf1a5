"""The trials and the best job of a search, as values and as files of its directory."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.config.job import JobSpec, to_toml
from elastichost.search.objective import Direction, best_of
from elastichost.search.settings import SearchSettings, job_of_trial
from elastichost.search.trial_feed import StudyTrial
from elastichost.search.trials import job_name

__all__ = ["BEST_FILE", "TRIALS_FILE", "SearchOutcome", "TrialOutcome", "outcome_of", "write_outcome"]

BEST_FILE, TRIALS_FILE = "best.toml", "trials.csv"


class TrialOutcome(msgspec.Struct, frozen=True):
    """One trial. value: the metric; None: it failed, or has not ended. settings: its values by setting, as `--set`
    takes them. run_dir: its run directory; "": it has none yet. why: the reason of a failure."""

    trial: int
    job: str
    state: Literal["done", "failed", "unfinished"]
    value: float | None
    settings: dict[str, str]
    run_dir: str = ""
    why: str = ""


class SearchOutcome(msgspec.Struct, frozen=True):
    """The trials of a search that were asked for so far. wanted: number of trials of the whole search. best: number of
    the best trial; None: no trial is done. has_given_up: it ended early, because its first trials all failed."""

    directory: str
    metric: str
    direction: Direction
    wanted: int
    trials: tuple[TrialOutcome, ...]
    best: int | None
    has_given_up: bool = False

    @property
    def best_trial(self) -> TrialOutcome | None:
        return next((one for one in self.trials if one.trial == self.best), None)

    @property
    def is_finished(self) -> bool:
        """Whether no trial is left to train."""
        has_all = self.has_given_up or len(self.trials) >= self.wanted
        return has_all and all(one.state != "unfinished" for one in self.trials)


def outcome_of(
    directory: Path, settings: SearchSettings, trials: Sequence[StudyTrial], *, has_given_up: bool = False
) -> SearchOutcome:
    """The outcome of a search from the trials of its study."""
    paths = [parameter.path for parameter in settings.parameters]
    rows = tuple(
        TrialOutcome(
            trial=one.number,
            job=job_name(one.number),
            state="unfinished" if not one.is_told else "failed" if one.value is None else "done",
            value=one.value,
            settings=dict(zip(paths, one.texts, strict=False)),  # a kill may have left a trial without some values
            run_dir=one.run_dir,
            why=one.why,
        )
        for one in trials
    )
    done = [(row.trial, row.value) for row in rows if row.value is not None]
    return SearchOutcome(
        directory=str(directory),
        metric=settings.objective.metric,
        direction=settings.objective.direction,
        wanted=settings.trials,
        trials=rows,
        best=best_of(done, settings.objective.direction),
        has_given_up=has_given_up,
    )


def write_outcome(directory: Path, outcome: SearchOutcome, settings: SearchSettings, job: JobSpec) -> None:
    """Writes `trials.csv`, and `best.toml`: the job with the values of the best trial, which trains unedited. Raises
    OSError; each file is then as before or new."""
    paths = [parameter.path for parameter in settings.parameters]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["trial", "state", outcome.metric, *paths, "run_dir", "why"])
    for one in outcome.trials:
        value = "" if one.value is None else repr(one.value)
        values = [one.settings.get(path, "") for path in paths]
        rows.writerow([one.trial, one.state, value, *values, one.run_dir, one.why])
    write_atomically(directory / TRIALS_FILE, text.getvalue().encode())
    best = outcome.best_trial
    if best is None:
        return
    spec = job_of_trial(job, settings, tuple(best.settings[path] for path in paths), job.job.name)
    first = f"# trial {best.trial} of {len(outcome.trials)}: {outcome.metric} {best.value!r}\n"
    write_atomically(directory / BEST_FILE, (first + to_toml(spec)).encode())
