"""What was trained, from the settings of a job."""

from __future__ import annotations

import tomllib
from typing import Any

from elastichost.reporting.run.facts import TableFacts
from elastichost.reporting.run.trained import flat_settings, trained_of

JOB = """
[job]
seed = 7
[model]
build = "models.py:build"
args = { hidden = [64, 1] }
[data]
format = "parquet"
train = ["a.parquet", "b.parquet"]
dense = ["price"]
categorical = ["item", "recent", "user", "hour"]
[tables.default]
dim = 16
rows = "dynamic"
[tables.item]
features = ["item", "recent"]
rows = 5000
[train]
batch_size = 512
optimizer_rows = { name = "adagrad", lr = 0.1 }
"""


def content() -> dict[str, Any]:
    return tomllib.loads(JOB)


def test_model_tables_and_settings_are_told() -> None:
    trained = trained_of(content())
    assert (trained.model, trained.args) == ("models.py:build", "hidden = [64, 1]")
    assert trained.tables == (
        TableFacts("item", ("item", "recent"), 1, "16", "5,000", "adagrad, lr 0.1"),
        TableFacts("default", ("user", "hour"), 2, "16", "dynamic", "adagrad, lr 0.1"),
    )
    settings = dict(trained.settings)
    assert settings["data"] == "parquet, a.parquet and 1 more"
    assert settings["columns"] == "1 dense, 4 categorical"
    assert (settings["batch size"], settings["optimizer of rows"], settings["seed"]) == ("512", "adagrad, lr 0.1", "7")
    assert "mode" not in settings


def test_a_job_of_another_version_has_what_it_has() -> None:
    assert trained_of({}).tables == ()
    odd = {"model": 3, "tables": {"a": 1}, "data": {"categorical": "x"}, "train": {"optimizer_rows": "adam"}}
    assert trained_of(odd).tables == (TableFacts("a", ("a",), 1, "", "", ""),)


def test_settings_are_flat_json() -> None:
    flat = flat_settings(content())
    assert flat["model.args.hidden"] == "[64, 1]"
    assert flat["tables.item.rows"] == "5000"
    assert flat["train.optimizer_rows.name"] == '"adagrad"'
