"""The directory of a search, and the values that its job file allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.dispatcher.directory import read_asked
from elastichost.dispatcher.options import AskedOptions
from elastichost.errors import ConfigError, PreflightError
from elastichost.search.settings import (
    begin_directory,
    check_values,
    is_search,
    job_of_trial,
    read_settings,
    write_settings,
)
from tests.search.conftest import job, settings_of

LR = "train.optimizer_rows.lr"


def test_a_search_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory, settings = tmp_path / "s", settings_of(f"{LR}=log(0.01, 1)", "train.epochs=choice(1, 2)")
    begin_directory(directory, settings, job(), AskedOptions("random", memory="1GiB"))
    assert read_settings(directory) == (settings, job())
    assert read_asked(directory) == AskedOptions("random", memory="1GiB")
    assert is_search(directory)
    write_settings(directory, settings_of("train.epochs=int(1, 2)", trials=9))
    assert read_settings(directory)[0].trials == 9


def test_a_directory_without_settings_has_no_search(tmp_path: Path) -> None:
    """The settings are the last file: a search that was killed before them had begun nothing."""
    begin_directory(tmp_path, settings_of(f"{LR}=log(0.01, 1)"), job(), AskedOptions("random"))
    assert max((path.stat().st_mtime_ns, path.name) for path in tmp_path.iterdir())[1] == "search.json"
    (tmp_path / "search.json").unlink()
    assert not is_search(tmp_path)
    with pytest.raises(ConfigError, match="not the directory of a search"):
        read_settings(tmp_path)
    (tmp_path / "search.json").write_text("{")
    with pytest.raises(PreflightError, match=r"search\.json cannot be read"):
        read_settings(tmp_path)
    with pytest.raises(PreflightError, match="could not be written"):
        begin_directory(tmp_path / "search.json" / "s", settings_of(f"{LR}=log(0.01, 1)"), job(), AskedOptions("a"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.optimizer_row.lr=log(0.01, 1)", 'did you mean "optimizer_rows"'),
        ("train.optimizer_rows.lrr=log(0.01, 1)", 'did you mean "lr"'),
        (f"{LR}=uniform(-1, 1)", "allowed: a number > 0"),
        ("train.batch_size=int(128, 2000000)", "2000000 (from --param train.batch_size): allowed: a whole number"),
        ("train.batch_size=log(128, 256)", "allowed: a whole number"),
        ("train.optimizer_rows.name=choice(sgd, adagard)", 'did you mean "adagrad"'),
        ("train=choice(1, 2)", "a section with settings"),
        ("train.lr.x=int(1, 2)", "train.lr"),
        ("resources.workers=int(0, 2)", "a whole number >= 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_before_the_start(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_values(job(), settings_of(text).parameters, "job.toml", Path("/"))
    assert said in "; ".join(caught.value.problems)


def test_all_that_is_not_allowed_is_reported_at_once() -> None:
    texts = ("train.optimizer_rows.lrr=log(0.01, 1)", "train.epochs=int(0, 3)", f"{LR}=log(0.01, 1)")
    with pytest.raises(ConfigError) as caught:
        check_values(job(), settings_of(*texts).parameters, "job.toml", Path("/"))
    assert len(caught.value.problems) == 2
    allowed = settings_of(
        f"{LR}=log(0.01, 1)", "train.optimizer_rows.name=choice(sgd, adagrad)", "model.args.x=int(1, 2)"
    )
    check_values(job(), allowed.parameters, "job.toml", Path("/"))


def test_the_job_of_a_trial_differs_in_its_name_and_its_values() -> None:
    settings = settings_of(f"{LR}=log(0.01, 1)", "model.args.x=choice([8], [4])")
    made = job_of_trial(job(), settings, ("0.25", "[8]"), "trial-003")
    assert (made.job.name, made.train.optimizer_rows.lr, made.model.args) == ("trial-003", 0.25, {"x": [8]})
    back = job_of_trial(job(), settings_of(f"{LR}=log(0.01, 1)"), ("0.1",), "ads")
    assert back == job()


def test_relative_paths_among_the_values_are_relative_to_the_job_file() -> None:
    settings = settings_of("model.build=choice(a.py:build, b.py:build)")
    made = job_of_trial(job(), settings, ("b.py:build",), "trial-000")
    assert made.model.build == "/home/user/jobs/b.py:build"
