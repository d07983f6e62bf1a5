"""Code of a user passes `mypy --strict` without a plugin, and its mistakes do not."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import elastichost as eh
from elastichost.api.job import SECTIONS
from elastichost.api.sections import DataFields, TableFields
from elastichost.config.sections.data import DataSection
from elastichost.config.sections.schema import TableOverrides

ROOT = Path(__file__).resolve().parents[2]
USER = """
from pathlib import Path
from typing import Any

import elastichost as eh


class Plot(eh.Callback):
    def __init__(self) -> None:
        self.losses: list[tuple[int, float]] = []

    def on_end(self, run: eh.Run) -> None:
        print(run.metrics["auc"])


def build(tables: Any, num_dense: int, hidden: int = 8) -> object:
    return object()


few = eh.Data(train="x.csv", dense=["a"])
many = eh.Data(
    train=[Path("a.csv"), "b.csv"],
    test=Path("test.csv"),
    format="csv",
    label=["clicked", "bought"],
    dense=("price",),
    categorical="item",
    csv={"types": {"item": "int"}},
)
rows = eh.Data(train=eh.from_iterable(lambda: iter([{"y": 1}]), name="rows", unit_rows=1000), test="test.parquet")
made = eh.Data(format="synthetic", synthetic={"rows": 1000})
tables = {"default": eh.Table(dim=16), "item": eh.Table(features=["item"], rows=100, optimizer={"lr": 0.1})}
job = eh.Job.of(build, few, model_args={"hidden": 4}, tables=tables, train={"epochs": 2})
run: eh.Run = eh.train(job, loggers=["csv", eh.loggers.MLflow(experiment="e")], callbacks=[Plot()], dir=Path("run"))
again: eh.Run = eh.train(model=build, data={"train": "x.csv"}, tables=tables, workers=(1, 2), servers="auto")
handle: eh.RunHandle = eh.start("job.toml", train={"epochs": 2})
reached = handle.scale(workers=3)
rate: float = handle.status().samples_per_s
best: float = max(run.metrics["auc"], eh.resume(again, resources={"workers": 2}).metrics["auc"])
try:
    counts: dict[str, int] = handle.wait(timeout_s=1.0).samples
except (TimeoutError, eh.errors.ConfigError) as error:
    print(error)
"""
MISTAKES = """
import elastichost as eh

eh.Data(lable="clicked")
eh.Data(train=3)
eh.Data(order="random")
eh.Table(dim="16")
eh.train(model="m.py:build", data=eh.Data(train="x.csv"), workers=1.5)
eh.train("job.toml", train=3)
"""


def checked(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "user.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(folder / "cache"), "user.py"],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.thorough
def test_code_of_a_user_passes_and_its_mistakes_do_not(tmp_path: Path) -> None:
    """One test, because both share the cache of mypy."""
    right = checked(tmp_path, USER)
    assert "user.py" not in right.stdout, right.stdout
    wrong = checked(tmp_path, MISTAKES)
    lines = [number for number, line in enumerate(MISTAKES.splitlines(), 1) if line.startswith("eh.")]
    assert [f"user.py:{number}: error" in wrong.stdout for number in lines] == [True] * len(lines), wrong.stdout


@pytest.mark.parametrize(("fields", "section"), [(DataFields, DataSection), (TableFields, TableOverrides)])
def test_every_field_of_a_section_has_a_type_for_users(fields: type, section: type[DataSection]) -> None:
    assert list(fields.__annotations__) == list(section.model_fields)


@pytest.mark.parametrize(("shown", "section"), [(eh.Data, DataSection), (eh.Table, TableOverrides)])
def test_help_and_completion_know_every_field(shown: type, section: type[DataSection]) -> None:
    assert list(inspect.signature(shown).parameters) == list(section.model_fields)
    text = " ".join(str(shown.__doc__).split())
    for name, field in section.model_fields.items():
        assert f"{name}: " in text
        meaning = (field.description or "").replace("the job file", "the working directory")
        assert " ".join(meaning.split()) in text
    assert "job file" not in text


def test_help_of_train_names_every_argument_and_section() -> None:
    text = inspect.getdoc(eh.train) or ""
    for name in (*inspect.signature(eh.train).parameters, *SECTIONS):
        assert name in text, name
