"""The metrics of a job file: names, columns, directions, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from elastichost.config.job import JobSpec, load_job, make_job, to_toml
from elastichost.config.metric_names import (
    Metric,
    figure_names,
    group_columns,
    is_higher_better,
    metric_of,
)
from elastichost.errors import ConfigError

OWN = "eval/mine.py:brier"


def job(evaluate: dict[str, Any], folder: Path = Path("/jobs"), **data: Any) -> JobSpec:
    columns = {"train": ["a"], "test": ["b"], "label": "y", "categorical": ["item", "user"], **data}
    raw = {"model": {"build": "a:b"}, "data": columns, "evaluate": evaluate}
    return make_job(raw, folder, "job", environ={})


def test_names_of_metrics() -> None:
    assert metric_of("auc") == Metric("auc", "auc")
    assert metric_of("gauc(user id)") == Metric("gauc(user id)", "gauc", group="user id")
    assert metric_of("ndcg@10(user)") == Metric("ndcg@10(user)", "ndcg", group="user", depth=10)
    assert metric_of("recall@5(a(b))") == Metric("recall@5(a(b))", "recall", group="a(b)", depth=5)
    assert metric_of("/x/mine.py:brier") == Metric("mine.py:brier", "own", function="/x/mine.py:brier")
    assert metric_of("some.module:brier") == Metric("some.module:brier", "own", function="some.module:brier")
    for wrong in ("AUC", "gauc", "gauc()", "gauc@3(user)", "ndcg(user)", "ndcg@0(user)", "recall@x(user)", "mine.py"):
        assert metric_of(wrong) is None
    assert group_columns(["gauc(b)", "auc", "ndcg@3(a)", "recall@3(b)"]) == ("b", "a")


def test_figures_and_their_directions() -> None:
    assert figure_names(["gauc(u)"], ["y"]) == ("auc", "logloss", "normalised_entropy", "calibration", "gauc(u)")
    assert "gauc(u)[z]" in figure_names(["gauc(u)"], ["y", "z"])
    better: dict[str, Any] = {"/x/mine.py:brier": "lower"}
    known = {"auc": True, "logloss": False, "logloss[z]": False, "gauc(u)[y]": True, "ndcg@3(u)": True}
    known |= {"mine.py:brier": False, "mine.py:brier[y]": False}
    assert {name: is_higher_better(name, better, ["y", "z"]) for name in known} == known
    assert is_higher_better("calibration", better, ["y"]) is None
    assert is_higher_better("other.py:f", better, ["y"]) is None


def test_the_files_of_functions_are_relative_to_the_job_file(tmp_path: Path) -> None:
    found = job({"metrics": ["auc", OWN], "better": {OWN: "lower"}, "early_stop": {"metric": "mine.py:brier"}})
    assert found.evaluate.metrics == ("auc", "/jobs/eval/mine.py:brier")
    assert found.evaluate.better == {"/jobs/eval/mine.py:brier": "lower"}
    (tmp_path / "job.toml").write_text(to_toml(found))
    assert load_job(tmp_path / "job.toml", environ={}) == found


def test_the_best_checkpoint_needs_a_figure_with_a_direction_and_test_data() -> None:
    raw = {"model": {"build": "a:b"}, "data": {"train": ["a"], "label": "y", "categorical": ["c"]}}
    with pytest.raises(ConfigError) as refused:
        make_job({**raw, "checkpoint": {"keep_best": "gauc(c)"}}, Path("/jobs"), "job", environ={})
    assert len(refused.value.problems) == 2
    assert "the job computes no such figure" in refused.value.problems[0]
    assert "there is no test data" in refused.value.problems[1]


@pytest.mark.parametrize(
    ("evaluate", "data", "message"),
    [
        ({"metrics": ["aux"]}, {}, r'evaluate.metrics: "aux" is no metric; did you mean "auc"\?; allowed: "auc"'),
        ({"metrics": ["auc", "auc"]}, {}, 'evaluate.metrics: "auc" is named twice'),
        ({"metrics": ["a/m.py:f", "b/m.py:f"]}, {}, r"m.py:f\" has the same name as"),
        (
            {"early_stop": {"metric": "gauc(user)"}},
            {},
            r"early_stop.metric = \"gauc\(user\)\": the job computes no such",
        ),
        ({"early_stop": {"metric": "auc[z]"}}, {}, "the job computes no such figure"),
        (
            {"metrics": [OWN], "early_stop": {"metric": "mine.py:brier"}},
            {},
            'set evaluate.better."/jobs/eval/mine.py:brier" =',
        ),
        (
            {"metrics": ["some.module:f"], "early_stop": {"metric": "some.module:f[y]"}},
            {"label": ["y", "z"]},
            'set evaluate.better."some.module:f" =',
        ),
        ({"early_stop": {"metric": "calibration"}}, {}, "its best value is 1"),
        ({"better": {"auc": "higher"}}, {}, "evaluate.better.auc: it is no function in evaluate.metrics"),
        (
            {"metrics": ["gauc(user)"]},
            {"format": "my.reader:Reader", "categorical": ["item"]},
            "'user' is not one of data.categorical",
        ),
    ],
)
def test_what_is_refused(evaluate: dict[str, Any], data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        job(evaluate, **data)
    assert refused.match("1 problem")
    (problem,) = refused.value.problems
    assert re.search(message, problem), problem
