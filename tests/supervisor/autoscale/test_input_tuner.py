"""The tuner of the input in a live run: who is told which knobs, how much memory, and what the other tuner may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastichost.datasets.api import DatasetDescription, Unit
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.decisions import Recorder, read_records
from elastichost.runs.events import InputTuned, TunerFailed
from elastichost.supervisor.autoscale import input_tuner as tuning
from elastichost.supervisor.autoscale.input_tuner import InputTuner
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import State
from elastichost.tuner.replay import replay
from elastichost.wire.control import ControlMessage, HeartbeatMsg, InputKnobsMsg
from elastichost.wire.facts import InputKnobs, StageSample, StepSample
from tests.datasets.conftest import load
from tests.supervisor.noted import Noted
from tests.tuner.input.world import Source

BUDGET_BYTES = 1 << 30


@dataclass
class Scene:
    """A run of two workers on two cores, whose source is known exactly."""

    folder: Path
    setting: str = ""
    mode: str = "act"
    source: Source = field(default_factory=Source)
    used_bytes: int = 0
    cached_bytes: int = 0
    sent: list[tuple[str, InputKnobs]] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    now_s: float = 0.0
    beats: int = 0

    def __post_init__(self) -> None:
        remote = 'remote = { bytes_per_s = "7.4MB" }\n'
        job = load(self.folder, f'format = "synthetic"\n{remote}{self.setting}\n[tuner]\nmode = "{self.mode}"')
        self.noted, self.fleet = Noted(), Fleet()
        self.recorder = Recorder(self.folder / "decisions.jsonl")
        run: Any = SimpleNamespace(
            job=job,
            fleet=self.fleet,
            recorder=self.recorder,
            **self.noted.attributes,
            last_decision="",
            input=None,
            send=self.send,
            all_cores=lambda cores: cores,
        )
        train = DatasetDescription(100, (Unit(0, 0, 100, 0, 0),), (), {}, (), 13, 1)
        prepared: Any = SimpleNamespace(train=train, cores=(0, 1), memory_bytes=BUDGET_BYTES)
        components: Any = SimpleNamespace(
            arena_bytes=lambda: self.used_bytes, copies_bytes=lambda: 0, cached_bytes=lambda: self.cached_bytes
        )
        self.changes: Any = SimpleNamespace(is_settled=True)
        self.run, self.tuner = run, InputTuner(run, prepared, components, self.changes)
        for index in range(2):
            self.add_worker(index)

    def add_worker(self, index: int) -> None:
        record = self.fleet.request(ProcessId("worker", index, 1), ProcessSpec("worker", index, (), 1), 0.0)
        record.state = State.RUNNING

    def send(self, process: ProcessId, message: ControlMessage) -> bool:
        assert isinstance(message, InputKnobsMsg)
        self.sent.append((process.name, message.knobs))
        self.bounds.append(message.cache_bytes)
        return True

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.5)):
            self.now_s, self.beats = self.now_s + 0.5, self.beats + 1
            totals = self.source.totals(self.tuner.knobs)
            share = 1 / len(self.fleet.live("worker"))
            stages = (
                StageSample(
                    "source", source_s=share * totals.source_s, bytes=int(share * totals.source_bytes), items=9
                ),
                StageSample("decode", cpu_s=share * totals.decode_cpu_s, source_s=0.1),
                StageSample("train", empty_s=share * totals.empty_s),
            )
            beat = StepSample(
                samples=int(share * totals.samples),
                seconds=0.5,
                training_cpu_s=share * totals.training_cpu_s,
                stages=stages,
            )
            for record in self.fleet.live("worker"):
                self.fleet.heartbeat(record, HeartbeatMsg(self.beats, beat), self.now_s)
            self.tuner.look({}, self.now_s, is_steady=True)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_workers_get_the_knobs_that_the_source_needs_and_new_workers_too(scene: Scene) -> None:
    scene.pass_time(10.0)
    knobs = scene.tuner.knobs
    assert scene.source.speed(knobs) >= 0.95 * scene.source.best()
    assert scene.sent == [("worker-0", knobs), ("worker-1", knobs)]
    assert [event.decision.kind for event in scene.noted.events if isinstance(event, InputTuned)] == ["tune", "settle"]
    scene.add_worker(2)
    scene.pass_time(0.5)
    assert scene.sent[-1] == ("worker-2", knobs)
    assert scene.run.input.connections == knobs.connections
    assert {stage.stage for stage in scene.run.input.stages} == {"source", "decode", "train"}


def test_no_more_workers_are_tried_for_what_connections_can_do(scene: Scene) -> None:
    assert scene.tuner.most_workers(present=2) == 2 and scene.tuner.is_tuning
    scene.pass_time(10.0)
    assert not scene.tuner.is_tuning
    assert scene.tuner.most_workers(present=1) == 2, "as many as cores, where no worker waits"


def test_with_a_fixed_number_of_connections_workers_are_the_only_way(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "input = { connections = 1 }")
    scene.pass_time(10.0)
    assert scene.tuner.most_workers(present=2) is None
    assert scene.sent == []


@pytest.mark.parametrize("mode", ["watch", "off"])
def test_without_the_leave_to_act_nothing_changes(tmp_path: Path, mode: str) -> None:
    scene = Scene(tmp_path, mode=mode)
    scene.pass_time(20.0)
    assert scene.sent == [] and scene.tuner.most_workers(present=2) is None and not scene.tuner.is_tuning
    told = [event for event in scene.noted.events if isinstance(event, InputTuned)]
    assert len(told) == (mode == "watch") and all(event.only_watches for event in told)


def test_knobs_of_the_job_file_are_those_of_new_workers_and_are_not_sent(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 'input = { connections = 4, prefetch_bytes = "1MiB" }', mode="off")
    scene.pass_time(2.0)
    assert scene.sent == []
    assert scene.run.input.connections == 4


def test_what_is_read_ahead_stays_within_its_share_and_within_half_of_what_is_left(scene: Scene) -> None:
    def each(private: dict[int, int], cached_bytes: int = 0) -> int:
        return scene.tuner._memory_bytes(scene.tuner._left_bytes(private, cached_bytes), 2)

    assert 2 * each({}) <= 0.1 * BUDGET_BYTES
    scene.used_bytes = BUDGET_BYTES - (1 << 20)
    assert 2 * each({}) <= 1 << 19
    assert each({1: 1 << 21}) == 0
    scene.used_bytes = 0
    assert each({}, cached_bytes=BUDGET_BYTES) == 0


def test_decoded_units_stay_within_half_of_what_is_left_and_make_way_for_rows(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 'input = { cache = "memory" }')
    scene.pass_time(1.0)
    assert {knobs.cache for _, knobs in scene.sent} == {"memory"}
    assert scene.bounds == [BUDGET_BYTES // 2] * 2, "each worker is told the bound of all together, once"
    scene.cached_bytes, scene.used_bytes = BUDGET_BYTES // 2, BUDGET_BYTES // 4
    scene.pass_time(1.0)
    assert 0.3 * BUDGET_BYTES < scene.bounds[-1] <= 0.375 * BUDGET_BYTES
    told = len(scene.bounds)
    scene.pass_time(5.0)
    assert scene.bounds[told:] == [] or scene.tuner.knobs.connections > 1
    scene.used_bytes = BUDGET_BYTES
    scene.cached_bytes = 0
    scene.pass_time(1.0)
    assert scene.bounds[-1] == 0
    assert scene.run.input.cache == "memory"


def test_decoded_units_stay_within_the_bytes_of_the_job_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 'input = { cache = "memory", cache_bytes = "1MiB" }', mode="off")
    scene.pass_time(1.0)
    assert set(scene.bounds) == {1 << 20}


def test_memory_that_others_need_is_given_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 'input = { prefetch_bytes = "32MiB" }')
    scene.pass_time(5.0)
    assert scene.tuner.knobs.prefetch_bytes == 32 << 20
    scene.used_bytes = BUDGET_BYTES
    scene.pass_time(30.0)
    assert scene.tuner.knobs.prefetch_bytes < 64 << 10


def test_a_bug_of_the_tuner_is_reported_once_and_the_run_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(tuning, "decide", fail)
    scene.pass_time(5.0)
    assert scene.noted.events == [TunerFailed("KeyError", "'x'")]


def test_the_recorded_looks_give_the_recorded_decisions(scene: Scene) -> None:
    scene.pass_time(10.0)
    scene.recorder.close()
    found = list(replay(read_records(scene.folder / "decisions.jsonl")))
    assert [one.part for one in found] == ["input", "input"]
    assert all(one.is_same for one in found)


def test_a_decision_can_be_written(scene: Scene) -> None:
    scene.pass_time(10.0)
    for event in scene.noted.events:
        assert msgspec.json.encode(event)


def test_a_run_whose_trainers_never_wait_has_no_event_of_its_input(tmp_path: Path) -> None:
    scene = Scene(tmp_path, source=Source(bandwidth=1e9))
    scene.pass_time(20.0)
    assert scene.noted.events == [] and not scene.tuner.is_tuning
