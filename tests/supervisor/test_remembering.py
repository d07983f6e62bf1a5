"""What a run has learnt of memory is in the history, and the next run of such a job begins with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastichost.config import JobSpec, load_job
from elastichost.config_tables import resolve_tables
from elastichost.datasets import open_reader
from elastichost.history import History
from elastichost.job_features import Estimates
from elastichost.supervisor.beginning import Beginning, begin
from elastichost.supervisor.remembering import record_of, remember
from elastichost.tuner.candidates import Bounds
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.memory import begin as begin_memory
from elastichost.tuner.memory_growth import GrowthState, is_foreknown, observe
from elastichost.tuner.memory_prior import learnt
from elastichost.tuner.policy import TunerSettings, TunerState
from elastichost.tuner.profile import BlockSettings

JOB = """
[job]
name = "shop"
[model]
build = "elastichost.models:dlrm"
args = {{ bottom = [16, 8], top = [16, 1] }}
[data]
format = "synthetic"
[data.synthetic]
rows = {rows}
tables = 2
table_rows = 1000000
[tables.default]
dim = 8
rows = "dynamic"
[resources]
workers = {workers}
servers = 1
[tuner]
warm_start = {warm_start}
"""
CORES = (0, 1)
ROW = 100.0


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "history.sqlite"
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(path))
    return path


def job(directory: Path, **facts: Any) -> JobSpec:
    path = directory / "job.toml"
    path.write_text(JOB.format(**{"rows": 100_000, "workers": '"auto"', "warm_start": "true", **facts}))
    return load_job(path, environ={})


def beginning(spec: JobSpec) -> Beginning:
    train = open_reader(spec, "train").describe()
    return begin(spec, resolve_tables(spec, train.key_kinds), train, CORES, (), 1.0)


def grown(looks: int = 40) -> GrowthState:
    """30 n^0.7 rows."""
    state = GrowthState()
    for number in range(1, looks + 1):
        state = observe(state, number * 20_000, 30 * (number * 20_000) ** 0.7 * ROW, ROW)
    return state


def end(run: Any, first: Beginning, memory: Estimates) -> None:
    """As a run ends that has measured one configuration."""
    plan = Configuration(2, 1)
    settings = TunerSettings(
        workload=Workload(batch_size=128, host_cores=2, row_bytes=64, ids_per_sample=2.0),
        bounds=Bounds(Configuration(1, 1), Configuration(4, 1), cores=2),
        block=BlockSettings(),
    )
    seen = Observation(plan, 10_000.0, 0.02, 20.0, at_s=30.0)
    state = TunerState(observations=(seen,))
    record = record_of(first.features, state, settings, plan, "2026-01-01T00:00:00Z", memory, ended_well=True)
    assert record is not None and record.memory == memory
    remember(run, record)


def test_the_next_run_of_a_job_begins_with_what_the_last_one_learnt(tmp_path: Path, history: Path) -> None:
    spec = job(tmp_path)
    first = beginning(spec)
    assert first.first.memory == Estimates(), "there is no history"
    found = learnt(grown(), 5e7)
    end(None, first, found)
    with History(history) as kept:
        (record,) = kept.records()
    assert record.memory == found
    second = beginning(spec).first.memory
    assert second.mean == pytest.approx(found.mean)
    assert all(second.sd[name] >= found.sd[name] for name in found.sd), "another run is another draw"
    state = begin_memory(second).growth
    state = observe(state, 0, 0.0, ROW)
    assert is_foreknown(state)


def test_a_larger_job_like_it_knows_the_law_and_less_surely(tmp_path: Path, history: Path) -> None:
    found = learnt(grown(), 5e7)
    end(None, beginning(job(tmp_path)), found)
    same = beginning(job(tmp_path)).first.memory
    larger = beginning(job(tmp_path, rows=1_600_000)).first.memory
    assert math.exp(larger.mean["beta"]) == pytest.approx(0.7, abs=0.03)
    assert larger.sd["beta"] > same.sd["beta"]


@pytest.mark.parametrize("facts", [{"warm_start": "false"}, {"workers": "2"}])
def test_without_the_history_nothing_is_known(tmp_path: Path, history: Path, facts: dict[str, str]) -> None:
    end(None, beginning(job(tmp_path)), learnt(grown(), 5e7))
    assert beginning(job(tmp_path, **facts)).first.memory == Estimates()


def test_a_history_that_cannot_be_written_is_told(tmp_path: Path, history: Path) -> None:
    said: list[str] = []

    class Run:
        def note(self, kind: str, text: str) -> None:
            said.append(f"{kind}: {text}")

    history.parent.mkdir()
    history.write_bytes(np.random.default_rng(1).bytes(9000))
    end(Run(), beginning(job(tmp_path, warm_start="false")), Estimates())
    assert len(said) == 1 and said[0].startswith("warning: history: ")
