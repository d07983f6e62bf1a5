"""The job of a search, and the same trials trained together, by one dispatcher one after another, and by one command
for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.interleave import ArmFailedError
from benchmarks.harness.workshop import ROOT
from elastichost.search.space import parse_parameters
from elastichost.search.study import open_study

__all__ = ["MOST_TRIALS", "SearchRun", "commands_one_by_one", "search_with", "write_job"]

# Optuna draws the first ten trials at random. Their values follow from the seed, so all arms train the same trials.
MOST_TRIALS = 10
PARAMETERS = ("train.optimizer_rows.lr=log(0.01, 1)", "train.optimizer_dense.lr=log(0.0001, 0.01)")
SEED = 0
SAID_CHARACTERS = 600  # of a failed command's output
JOB = """
[model]
build = "elastichost.models:dlrm"
args = {{ bottom = [64, 16], top = [64, 1] }}
[data]
format = "synthetic"
[data.synthetic]
rows = {rows}
test_rows = 20_000
tables = 8
table_rows = 20_000
[tables.default]
dim = 16
rows = 20_000
[train]
batch_size = 512
"""


@dataclass(frozen=True, slots=True)
class SearchRun:
    """One search. values: of each trial, for each parameter. best: highest AUC of its trials."""

    wall_s: float
    values: tuple[tuple[str, ...], ...]
    best: float


def write_job(folder: Path, rows: int) -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(rows=rows))
    return path


def search_with(options: Sequence[str], job: Path, trials: int, directory: Path) -> SearchRun:
    """Runs `elastichost search` with further options. Raises ArmFailedError if a trial is not done."""
    parameters = [part for text in PARAMETERS for part in ("--param", text)]
    command = ["search", str(job), *parameters, "--trials", str(trials), "--seed", str(SEED), *options]
    began_s = time.perf_counter()
    found = _call([*command, "--run-dir", str(directory), "--plain", "--json"])
    wall_s = time.perf_counter() - began_s
    done = [one for one in found["trials"] if one["state"] == "done"]
    if len(done) != trials:
        raise ArmFailedError(f"only {len(done)} of {trials} trials are done; see {directory}")
    return SearchRun(wall_s, tuple(tuple(one["settings"].values()) for one in done), max(one["value"] for one in done))


def commands_one_by_one(job: Path, trials: int, directory: Path) -> SearchRun:
    """Trains the same trials with `elastichost run` one after another, as a loop over `study.ask` does. Raises
    ArmFailedError if one is not done."""
    directory.mkdir()
    parameters = parse_parameters(PARAMETERS)
    study = open_study(directory, parameters, "maximize", SEED)
    asked = [study.ask() for _ in range(trials)]
    study.close()
    began_s, values = time.perf_counter(), []
    for trial in asked:
        changes = [
            part for one, text in zip(parameters, trial.texts, strict=True) for part in ("--set", one.override(text))
        ]
        run_dir = directory / f"run-{trial.number}"
        found = _call(["run", str(job), *changes, "--run-dir", str(run_dir), "--dashboard", "no", "--json"])
        values.append(found["test"]["auc"])
    return SearchRun(time.perf_counter() - began_s, tuple(one.texts for one in asked), max(values))


def _call(arguments: Sequence[str]) -> Any:
    """The JSON object of a verb. Raises ArmFailedError if it fails."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "ELASTICHOST_HISTORY": "off"}
    command = [sys.executable, "-m", "elastichost", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ArmFailedError(f"`{arguments[0]}` ended with {done.returncode}: {done.stderr[-SAID_CHARACTERS:]}")
    return json.loads(done.stdout.rstrip().rpartition("\n")[2])
