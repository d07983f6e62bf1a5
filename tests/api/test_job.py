"""Jobs that are made in Python: the same settings, checks and messages as those of a job file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import elastichost as eh
from elastichost.config.job import load_job
from elastichost.errors import ConfigError

DATA = {"train": "clicks/*.parquet", "label": "clicked", "dense": ["price"], "categorical": ["user", "item"]}


def test_a_job_from_its_parts_is_the_job_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = eh.Job.of(
        "elastichost.models:dlrm",
        eh.Data(**DATA),  # type: ignore[arg-type]
        model_args={"top": [8, 1]},
        tables={"default": eh.Table(dim=16, rows="dynamic"), "user": {"dim": 8}},
        train={"epochs": 2},
        job={"name": "clicks"},
    )
    (tmp_path / "clicks.toml").write_text(
        '[model]\nbuild = "elastichost.models:dlrm"\nargs = { top = [8, 1] }\n'
        '[data]\ntrain = "clicks/*.parquet"\nlabel = "clicked"\ndense = ["price"]\ncategorical = ["user", "item"]\n'
        '[tables.default]\ndim = 16\nrows = "dynamic"\n[tables.user]\ndim = 8\n[train]\nepochs = 2\n'
    )
    assert job.spec == load_job("clicks.toml") == eh.Job.from_toml("clicks.toml").spec
    (tmp_path / "again.toml").write_text(job.to_toml())
    assert load_job("again.toml") == job.spec


def test_paths_tuples_and_numbers_of_numpy_are_what_the_job_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"train": (Path("a.csv"), "b.csv"), "label": "y", "categorical": np.array(["c", "d"]), "format": "csv"}
    limited = {**data, "limit_rows": np.int64(5)}
    for given in (limited, eh.Data(**limited)):  # type: ignore[arg-type]
        job = eh.Job.of("m.py:build", given, model_args={"sizes": (np.int32(8), 1)}, train={"batch_size": np.int64(64)})
        assert job.spec.data.train == (f"{tmp_path}/a.csv", f"{tmp_path}/b.csv")
        assert (job.spec.data.categorical, job.spec.data.limit_rows) == (("c", "d"), 5)
        assert (job.spec.model.args, job.spec.train.batch_size) == ({"sizes": [8, 1]}, 64)


def test_a_notebook_shows_what_was_given_and_escapes_it() -> None:
    data = eh.Data(train="<b>.csv", label="y", categorical="c", format="csv")
    assert repr(data) == "Data(train=['<b>.csv'], format='csv', label='y', categorical=['c'])"
    job = eh.Job.of("m.py:build", data)
    assert repr(job) == f"<Job job: {Path.cwd()}/m.py:build, csv, 0 dense and 1 categorical columns>"
    shown = job._repr_html_()
    assert "&lt;b&gt;.csv" in shown and "<b>" not in shown
    assert "batch_size" not in shown, "defaults are left out"


def test_settings_are_changed_one_by_one() -> None:
    job = eh.Job.of("elastichost.models:dlrm", DATA, train={"epochs": 2, "batch_size": 64})
    changed = job.with_settings(train={"epochs": 3}, tables={"default": {"dim": 4}})
    assert (changed.spec.train.epochs, changed.spec.train.batch_size) == (3, 64)
    assert changed.spec.tables["default"].dim == 4
    assert job.spec.train.epochs == 2


def test_settings_of_sections_within_sections_are_changed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        '[model]\nbuild = "elastichost.models:dlrm"\nargs = { bottom = [8], top = [8, 1] }\n'
        '[data]\nformat = "csv"\ntrain = "a.csv"\nlabel = "y"\ncategorical = ["user", "item"]\n'
        'csv = { delimiter = ";", types = { user = "int", item = "int" } }\n'
        '[tables.user]\ndim = 8\noptimizer = { name = "sgd", lr = 0.5 }\n'
        '[train]\noptimizer_rows = { name = "adam", lr = 0.01, eps = 1e-6 }\nschedule = { warmup_samples = 100 }\n'
    )
    overrides = ["train.optimizer_rows.lr=0.1", "train.schedule.name=cosine", "data.csv.list_delimiter=,"]
    changed = eh.Job.from_toml(path).with_settings(
        train={"optimizer_rows": {"lr": 0.1}, "schedule": {"name": "cosine"}},
        data={"csv": {"list_delimiter": ","}},
        tables={"user": {"optimizer": {"lr": 0.25}}, "item": eh.Table(dim=4)},
    )
    assert changed.spec == load_job(path, [*overrides, "tables.user.optimizer.lr=0.25", "tables.item.dim=4"])
    assert (changed.spec.train.optimizer_rows.name, changed.spec.train.optimizer_rows.lr) == ("adam", 0.1)
    assert (changed.spec.tables["user"].dim, changed.spec.tables["item"].dim) == (8, 4)


def test_tables_with_keys_of_the_user_are_replaced() -> None:
    data = {**DATA, "train": "a.csv", "format": "csv", "csv": {"types": {"user": "int", "item": "int"}}}
    evaluate = {"metrics": ["auc", "m.py:a", "m.py:b"], "better": {"m.py:a": "higher", "m.py:b": "lower"}}
    job = eh.Job.of("elastichost.models:dlrm", data, model_args={"top": [8, 1]}, evaluate=evaluate)
    changed = job.with_settings(
        model={"args": {"bottom": [4]}},
        data={"csv": {"types": {"item": "string"}}},
        evaluate={"better": {"m.py:b": "higher"}},
    ).spec
    assert changed.model.args == {"bottom": [4]}
    assert changed.data.csv.types == {"item": "string"}
    assert changed.evaluate.better == {f"{Path.cwd()}/m.py:b": "higher"}
    assert changed.model.build == "elastichost.models:dlrm"


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"train": {"optimizer_rows": {"lrr": 1.0}}}, 'did you mean "lr"'),
        ({"train": {"optimizer_rows": 3}}, "allowed: a section"),
        ({"train": {"optimizer": {"lr": 1.0}}}, "train.optimizer: unknown section"),
    ],
)
def test_wrong_settings_within_sections_are_refused(sections: dict[str, dict[str, object]], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        eh.Job.of("elastichost.models:dlrm", DATA).with_settings(**sections)
    assert said in str(caught.value)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        eh.Data(train=3, lable="clicked", limit_rows=-1)  # type: ignore[arg-type, call-arg]
    assert len(caught.value.problems) == 3
    assert any('did you mean "label"' in problem for problem in caught.value.problems)
    with pytest.raises(ConfigError, match=r"dim = 0: allowed: .*>= 1"):
        eh.Table(dim=0)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"trian": {"epochs": 2}}, 'did you mean "train"'),
        ({"train": {"epoch": 2}}, 'did you mean "epochs"'),
        ({"train": 2}, "give a mapping"),
        ({"tables": {"default": 3}}, "tables['default'] is a int"),
        ({"epochs": 3}, 'write train={"epochs": 3}'),
        ({"most_jobs": 3}, "the sections are job, train"),
    ],
)
def test_wrong_sections_are_refused(sections: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        eh.Job.of("elastichost.models:dlrm", DATA, **sections)  # type: ignore[arg-type]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "arguments", [{}, {"model": "m.py:build"}, {"job": "job.toml", "model": "m.py:build"}, {"data": DATA}]
)
def test_a_job_needs_a_file_or_its_parts(arguments: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        eh.start(**arguments, dir=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"job": eh.Data(train="x.csv")}, "eh.train(model=..., data=eh.Data(...))"),
        ({"model": "m.py:build", "data": pa.table({"y": [1]})}, "data=eh.Data(train=table, "),
        ({"model": "m.py:build", "data": DATA, "tables": eh.Table(dim=8)}, 'write tables={"default": eh.Table(...)}'),
        ({"model": lambda tables, dense: None, "data": DATA}, "model is a function without a name"),
        ({"model": 3, "data": DATA}, "model is a int"),
        ({"model": "m.py:build", "data": DATA, "callbacks": [print]}, "derive a class from eh.Callback"),
        ({"model": "m.py:build", "data": DATA, "callbacks": eh.Callback()}, "write callbacks=[...]"),
        ({"model": "m.py:build", "data": DATA, "loggers": "csv"}, "write loggers=[...]"),
        ({"model": "m.py:build", "data": DATA, "loggers": [3]}, "the loggers are csv, mlflow"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_write(
    arguments: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        eh.start(**arguments, dir=tmp_path / "run")  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_frame_in_place_of_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="a Table was given, where a job has the name of a file"):
        eh.Data(train="a.parquet", label=pa.table({"y": [1]}))


def test_a_run_gets_no_directory_that_holds_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        eh.start(model="elastichost.models:dlrm", data=DATA, dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_a_program_states_counts_more_than_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--set` does; a variable sets what the program leaves open."""
    monkeypatch.setenv("ELASTICHOST_TRAIN__EPOCHS", "10")
    monkeypatch.setenv("ELASTICHOST_TRAIN__BATCH_SIZE", "77")
    monkeypatch.setenv("ELASTICHOST_RESOURCES__WORKERS", "3")
    data = eh.Data(train="t.parquet", label="clicked", categorical=["user"])
    job = eh.Job.of("elastichost.models:dlrm", data, train={"epochs": 2})
    assert (job.spec.train.epochs, job.spec.train.batch_size, job.spec.resources.workers) == (2, 77, 3)
