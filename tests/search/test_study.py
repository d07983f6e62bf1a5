"""The study in a file: values follow from the seed and the number of the trial, and a kill loses nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from sqlalchemy.pool import NullPool

from elastichost.errors import PreflightError
from elastichost.search.space import parse_parameters
from elastichost.search.study import STUDY_FILE, SearchStudy, open_study
from elastichost.search.trial_feed import StudyTrial

PARAMETERS = parse_parameters(["a=log(0.01, 1)", "b=int(1, 100)", "c=choice([8, 1], [16, 1])", "d=uniform(-1, 1)"])


OPENED: list[SearchStudy] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes the studies that a test has opened."""
    yield
    while OPENED:
        OPENED.pop().close()


def opened(directory: Path, seed: int = 3) -> SearchStudy:
    directory.mkdir(exist_ok=True)
    OPENED.append(open_study(directory, PARAMETERS, "maximize", seed))
    return OPENED[-1]


def raw_study(directory: Path) -> optuna.Study:
    """The study as another process sees it: its connection lasts for one statement."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{directory / STUDY_FILE}", {"poolclass": NullPool})
    return optuna.load_study(study_name="search", storage=storage)


def test_trials_of_a_killed_search_have_the_values_that_they_would_have_had(tmp_path: Path) -> None:
    whole = opened(tmp_path / "whole")
    asked = [whole.ask() for _ in range(3)]
    assert asked[0].texts != asked[1].texts
    assert all(len(one.texts) == len(PARAMETERS) for one in asked)
    assert whole.trials() == tuple(asked)

    killed = opened(tmp_path / "killed")
    assert killed.ask() == asked[0]
    raw = raw_study(tmp_path / "killed")
    raw.ask()  # killed before it had any value
    again = opened(tmp_path / "killed")
    assert again.trials() == (asked[0], StudyTrial(1, ()))
    assert (again.complete(0), again.complete(1), again.ask()) == tuple(asked)
    assert opened(tmp_path / "other", seed=4).ask().texts != asked[0].texts


def test_a_trial_without_some_of_its_values_gets_them(tmp_path: Path) -> None:
    whole = opened(tmp_path / "whole").ask()
    path = tmp_path / "killed"
    opened(path)
    raw = raw_study(path).ask()
    assert raw.suggest_float("a", 0.01, 1, log=True) > 0
    completed = opened(path).complete(0)
    assert completed.texts[0] == repr(raw.params["a"])
    assert completed.texts[1:] == whole.texts[1:] or len(completed.texts) == len(whole.texts)
    assert opened(path).complete(0) == completed


def test_how_trials_ended_is_kept(tmp_path: Path) -> None:
    study = opened(tmp_path)
    first, second = study.ask(), study.ask()
    study.tell(0, 0.75, "", "/runs/a")
    study.tell(1, None, "the loss is NaN", "")
    expected = (
        StudyTrial(0, first.texts, is_told=True, value=0.75, run_dir="/runs/a"),
        StudyTrial(1, second.texts, is_told=True, why="the loss is NaN"),
    )
    assert study.trials() == opened(tmp_path).trials() == expected


def test_what_was_told_informs_later_trials(tmp_path: Path) -> None:
    told = []
    for name, value in (("low", 0.0), ("high", 1.0)):
        study = opened(tmp_path / name)
        for number in range(12):
            texts = study.ask().texts
            study.tell(number, value if float(texts[0]) < 0.1 else 1 - value, "", "")
        told.append(study.ask().texts)
    assert told[0] != told[1]


def test_a_file_that_is_no_study_is_an_error(tmp_path: Path) -> None:
    (tmp_path / STUDY_FILE).write_text("no database" * 200)
    with pytest.raises(PreflightError, match=r"study\.db could not be read or written.*(?s:.)*--resume"):
        opened(tmp_path)


def test_trials_of_another_process_are_an_error(tmp_path: Path) -> None:
    study = opened(tmp_path)
    raw = raw_study(tmp_path)
    raw.enqueue_trial({"a": 0.5})
    with pytest.raises(PreflightError, match="another process"):
        study.ask()


def test_a_study_that_disappears_is_an_error(tmp_path: Path) -> None:
    study = opened(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(PreflightError, match="study"):
        study.ask()
