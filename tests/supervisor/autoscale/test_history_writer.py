"""A run writes what it has learnt about memory to the history, and the next run of a similar job begins with it."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elastichost.config.job import JobSpec, load_job
from elastichost.config.tables import resolve_tables
from elastichost.datasets import open_reader
from elastichost.errors import MemoryBudgetError
from elastichost.history.features import Estimates, JobFeatures, JobRecord
from elastichost.history.store import WAIT_S, History
from elastichost.plan import Plan, ProcessSpec
from elastichost.runs.events import HistoryUnavailable
from elastichost.supervisor.autoscale import history_writer as remembering
from elastichost.supervisor.autoscale.history_writer import record_of, remember
from elastichost.supervisor.autoscale.tuner_loop import AutoTuner
from elastichost.supervisor.startup.initial_plan import InitialPlan, begin
from elastichost.supervisor.supervisor import Supervisor
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.memory.forecast import begin as begin_memory
from elastichost.tuner.memory.growth import GrowthState, is_foreknown, observe
from elastichost.tuner.memory.prior import BETA, ROWS, learnt
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.policy import TunerSettings, TunerState
from elastichost.tuner.policy.profile import BlockSettings
from tests.supervisor.noted import Noted

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
    """The path of the history."""
    path = tmp_path / "state" / "history.sqlite"
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(path))
    return path


def job(directory: Path, **facts: Any) -> JobSpec:
    """A job with these settings."""
    path = directory / "job.toml"
    path.write_text(JOB.format(**{"rows": 100_000, "workers": '"auto"', "warm_start": "true", **facts}))
    return load_job(path, environ={})


def initial_plan(spec: JobSpec) -> InitialPlan:
    """The first plan of a job, with what the history knows."""
    train = open_reader(spec, "train").describe()
    return begin(spec, resolve_tables(spec, train.key_kinds), train, CORES, (), 1.0)


def grown(looks: int = 40) -> GrowthState:
    """The growth of a job that has 30 n^0.7 rows after n samples."""
    state = GrowthState()
    for number in range(1, looks + 1):
        state = observe(state, number * 20_000, 30 * (number * 20_000) ** 0.7 * ROW, ROW)
    return state


def end(run: Any, first: InitialPlan, memory: Estimates) -> None:
    """Writes the record of a run that has measured one configuration."""
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


class Ended:
    """The attributes of an AutoTuner after a run that has ended after a third of its samples."""

    _record_of = AutoTuner._record_of
    _run = SimpleNamespace(directory=SimpleNamespace(identity=SimpleNamespace(run_id="run-1")))

    def __init__(self, features: JobFeatures, *, is_measured: bool) -> None:
        self._features = features
        plan = Configuration(2, 1)
        self.settings = TunerSettings(Workload(batch_size=128, host_cores=2), Bounds(Configuration(1, 1), plan))
        seen = Observation(plan, 10_000.0, 0.02, 20.0, at_s=30.0)
        self.state = TunerState(observations=(seen,) if is_measured else ())
        specs = (ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (0,), 1))
        self._plan, self._has_failed = Plan(specs, "direct", "a test"), False
        self._components = SimpleNamespace(
            memory=SimpleNamespace(learnt=lambda *, is_whole: learnt(grown(), 5e7 if is_whole else 0.0)),
            leases=SimpleNamespace(ledger=SimpleNamespace(samples_planned=2_400_000, samples_accounted=800_000)),
        )

    def record(self, **facts: bool) -> JobRecord | None:
        return AutoTuner.record(self, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_measured", [False, True])
def test_a_run_that_ended_out_of_memory_records_how_memory_grows(
    tmp_path: Path, history: Path, is_measured: bool
) -> None:
    spec = job(tmp_path)
    first, whole = initial_plan(spec), learnt(grown())
    kept = Ended(first.features, is_measured=is_measured).record(ended_well=False, has_failed=True)
    assert kept is not None and not kept.is_measured and kept.parameters == Estimates() and not kept.ended_well
    assert kept.memory.mean == whole.mean, "the total growth is not known"
    assert all(kept.memory.sd[name] > whole.sd[name] for name in (ROWS, BETA))
    remember(Noted(), kept)  # type: ignore[arg-type]
    second = initial_plan(spec)
    assert second.first.memory.mean == pytest.approx(whole.mean) and second.first.prior is None
    assert "the growth of their memory is known" in second.plan.reason
    assert second.plan.reason.startswith(first.plan.reason.partition(" (")[0]), "the plan of the failed run is not used"
    assert is_foreknown(observe(begin_memory(second.first.memory).growth, 0, 0.0, ROW))


def test_a_run_that_ended_before_its_speed_was_measured_records_how_memory_grows(tmp_path: Path) -> None:
    features = initial_plan(job(tmp_path)).features
    stopped = Ended(features, is_measured=False).record(ended_well=False)
    done = Ended(features, is_measured=False).record(ended_well=True)
    assert stopped is not None and done is not None and not done.is_measured
    assert "growth_bytes" in done.memory.mean and "growth_bytes" not in stopped.memory.mean
    assert done.memory.sd["beta"] < stopped.memory.sd["beta"]
    asked = Ended(features, is_measured=True).record(ended_well=False)
    assert asked is not None and asked.is_measured, "a run that a user stops has not failed"
    gave_up = Ended(features, is_measured=True)
    gave_up._has_failed = True
    kept = gave_up.record(ended_well=True)
    assert kept is not None and not kept.is_measured, "the measurements of a tuner that failed are not used"


def test_a_run_without_measurements_writes_no_record(tmp_path: Path) -> None:
    ended = Ended(initial_plan(job(tmp_path)).features, is_measured=False)
    ended._components.memory.learnt = lambda *, is_whole: Estimates()
    assert ended.record(ended_well=True) is None


def test_a_supervisor_writes_the_record_of_a_failed_run_and_raises_its_error() -> None:
    calls: list[dict[str, bool]] = []
    training = SimpleNamespace(remember=lambda **facts: calls.append(facts))

    def train(described: object) -> None:
        raise MemoryBudgetError("too little", hint="more")

    supervisor: Any = SimpleNamespace(
        _describe_model=lambda: "described",
        _train=train,
        _training=training,
        _arenas=SimpleNamespace(is_gone=lambda: False),
    )
    with pytest.raises(MemoryBudgetError, match="too little"):
        Supervisor.run(supervisor)
    assert calls == [{"has_failed": True}]


def test_a_failed_run_does_not_wait_long_to_write_to_the_history(
    tmp_path: Path, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run writes all the time."""
    waits_s: list[float] = []

    def opened(path: Path, *, wait_s: float) -> History:
        waits_s.append(wait_s)
        return History(path, wait_s=0.0)

    monkeypatch.setattr(remembering, "History", opened)
    features = initial_plan(job(tmp_path)).features
    kept = Ended(features, is_measured=False).record(ended_well=False, has_failed=True)
    with History(history):
        other = sqlite3.connect(history, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        run = Noted()
        remember(run, kept)  # type: ignore[arg-type]
        other.execute("ROLLBACK")
        other.close()
    (event,) = run.of(HistoryUnavailable)
    assert "other runs are writing" in event.error
    assert waits_s == [remembering.SHORT_WAIT_S] and waits_s[0] < WAIT_S


def test_the_next_run_of_a_job_begins_with_the_growth_that_the_last_one_measured(tmp_path: Path, history: Path) -> None:
    spec = job(tmp_path)
    first = initial_plan(spec)
    assert first.first.memory == Estimates(), "there is no history"
    found = learnt(grown(), 5e7)
    end(None, first, found)
    with History(history) as kept:
        (record,) = kept.records()
    assert record.memory == found
    second = initial_plan(spec).first.memory
    assert second.mean == pytest.approx(found.mean)
    assert all(second.sd[name] >= found.sd[name] for name in found.sd), (
        "another run may differ, so its uncertainty is not smaller"
    )
    state = begin_memory(second).growth
    state = observe(state, 0, 0.0, ROW)
    assert is_foreknown(state)


def test_a_larger_job_of_the_kind_uses_the_law_with_more_uncertainty(tmp_path: Path, history: Path) -> None:
    found = learnt(grown(), 5e7)
    end(None, initial_plan(job(tmp_path)), found)
    same = initial_plan(job(tmp_path)).first.memory
    larger = initial_plan(job(tmp_path, rows=1_600_000)).first.memory
    assert math.exp(larger.mean["beta"]) == pytest.approx(0.7, abs=0.03)
    assert larger.sd["beta"] > same.sd["beta"]


@pytest.mark.parametrize("facts", [{"warm_start": "false"}, {"workers": "2"}])
def test_a_run_that_does_not_use_the_history_has_no_prior_knowledge(
    tmp_path: Path, history: Path, facts: dict[str, str]
) -> None:
    end(None, initial_plan(job(tmp_path)), learnt(grown(), 5e7))
    assert initial_plan(job(tmp_path, **facts)).first.memory == Estimates()


def test_a_history_that_cannot_be_written_is_reported(tmp_path: Path, history: Path) -> None:
    run = Noted()
    history.parent.mkdir()
    history.write_bytes(np.random.default_rng(1).bytes(9000))
    end(run, initial_plan(job(tmp_path, warm_start="false")), Estimates())
    assert run.kinds == ["history_unavailable"]
