"""The benchmark of the memory tuner and its figures, on a few runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.tuner.memory import benchmark as memory
from benchmarks.tuner.memory.benchmark import (
    ARMS,
    KINDS,
    LEAST_ROWS,
    PRECISION,
    RECALL,
    ArmFigures,
    Figures,
    measure,
    simulate,
)
from benchmarks.tuner.memory.real_runs import OFF, RealRun, read_run, with_leads
from elastichost.runs.events import AnyEvent, JournalLine, MemoryBudgetLent, MemoryBudgetSet
from elastichost.tuner.memory.facts import HostMemorySample, MemoryDecision, MemorySample
from elastichost.tuner.records import MemoryLooked, MemoryOpened


@pytest.fixture(scope="module")
def figures() -> ArmFigures:
    return measure(range(2))


@pytest.mark.parametrize("kind", KINDS)
def test_runs_grow_and_are_the_same_for_the_same_seed(kind: str) -> None:
    run, again = (simulate(kind, np.random.default_rng((4, 1))) for _ in range(2))
    assert np.array_equal(run.used, again.used)
    assert run.rows[-1] >= LEAST_ROWS
    assert (np.diff(run.rows) >= 0).all() and (np.diff(run.samples) > 0).all()
    assert run.exceeds_s is None or run.used.max() > run.budget


@pytest.mark.thorough
def test_running_out_of_memory_is_predicted_in_time_with_few_false_alarms(figures: ArmFigures) -> None:
    assert figures.exceeding >= 4
    assert figures.precision.mean >= PRECISION.bound
    assert figures.recall.mean >= RECALL.bound
    assert figures.die_on < figures.die_off >= figures.exceeding
    assert 1.0 <= figures.leads[0] <= figures.leads[1]


@pytest.mark.thorough
@pytest.mark.parametrize("arm", ARMS[1:])
def test_a_history_does_no_harm_even_if_it_is_misleading(arm: str) -> None:
    found = measure(range(1), arm)
    assert found.runs == len(KINDS) and found.exceeding >= 2
    assert found.precision.mean >= PRECISION.bound
    assert found.recall.mean >= RECALL.bound


def test_figures_are_printed(
    figures: ArmFigures, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "measure", lambda seeds, arm: dataclasses.replace(figures, arm=arm))
    monkeypatch.setattr(memory, "real_runs", lambda: RUNS)
    assert memory.main(["--quick", "--json", "--real"]) in (0, 1)
    *words, last = capsys.readouterr().out.splitlines()
    said = json.loads(last)
    assert said["benchmark"] == "memory"
    assert set(said) == {"schema", "benchmark", "commit", "machine", "figures", "verdicts"}
    told = msgspec.convert(said["figures"], Figures)
    assert told.arms["known"].runs == 2 * len(KINDS) and list(told.real) == RUNS
    assert told.aims == {"precision": 0.9, "recall": 0.95}
    assert [one["arm"] for one in said["verdicts"]] == ["unknown", "unknown", "known", "known"]
    assert sum(line.startswith("  precision") for line in words) == len(ARMS), "the tables come before the JSON"
    memory.main(["--quick", "--real"])
    shown = capsys.readouterr().out
    assert "precision" in shown and "with the tuner off" in shown and "{" not in shown
    assert "7.5 s before memory would have run out; an action takes 2.5 s; rows were dropped 1.0 s later" in shown


OFF_RUN = RealRun(OFF, "failed", 60_000)
ACT_RUN = RealRun("act", "done", 120_000, 2.5, 3.5, 2.5, "", tuple((float(s), 6000 * s) for s in range(21)))
RUNS = with_leads([OFF_RUN, ACT_RUN])


def test_a_lead_is_the_time_until_the_run_without_the_tuner_ended() -> None:
    assert [OFF_RUN, msgspec.structs.replace(ACT_RUN, lead_s=7.5)] == RUNS
    assert with_leads([msgspec.structs.replace(OFF_RUN, status="done"), ACT_RUN])[1].lead_s is None


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    def looked(at_s: float, kind: str, live: float) -> MemoryLooked:
        look = MemorySample(
            int(1000 * at_s), 1, 1.0, 100.0 * at_s, 1.0, live, 0.0, (HostMemorySample(0, 1, 1, 0.0, 1.0),)
        )
        return MemoryLooked(50.0 + at_s, look, MemoryDecision(kind, ""))  # type: ignore[arg-type]

    records = [
        MemoryOpened(),
        looked(0, "stay", 0),
        looked(1, "warn", 100),
        looked(2, "evict", 200),
        looked(3, "stay", 250),
    ]
    (tmp_path / "decisions.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    (tmp_path / "result.json").write_text('{"status": "done"}')
    (tmp_path / "status.json").write_text('{"samples_trained": 3000}')
    budget = MemoryBudgetSet(0, 1 << 20, 0, 0, 0, 1 << 20, forecast_bytes=(7.0 * (1 << 20), 9.0 * (1 << 20)))
    write_journal(tmp_path, budget)
    found = read_run("an arm", tmp_path)
    assert (found.status, found.samples, found.alarm_s, found.dropped_s) == ("done", 3000, 2.0, 3.0)
    assert found.foreseen == "the run needs 7.0 MiB, at most 9.0 MiB, until its end"
    assert found.course[-1] == (3.0, 3000)
    write_journal(tmp_path, MemoryBudgetLent(1 << 20), msgspec.structs.replace(budget, forecast_bytes=None), budget)
    assert read_run("an arm", tmp_path).foreseen == "", "the run had no forecast at its beginning"


def write_journal(folder: Path, *events: AnyEvent) -> None:
    lines = (msgspec.json.encode(JournalLine("", 0.0, event)) + b"\n" for event in events)
    (folder / "journal.jsonl").write_bytes(b"".join(lines))
