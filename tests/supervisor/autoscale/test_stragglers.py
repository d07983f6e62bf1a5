"""The watch over slow workers: its records replay to the same events, also when workers die and are replaced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.decisions import Recorder, read_records
from elastichost.runs.events import AnyEvent
from elastichost.supervisor.autoscale.stragglers import StragglerWatch
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.tuner.replay import replay
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import StepSample
from tests.supervisor.noted import Noted

FAST, SLOW = 200, 100  # samples a second


def started(fleet: Fleet, index: int, incarnation: int, now_s: float) -> ProcessId:
    """Adds a worker that trains to the fleet."""
    process = ProcessId("worker", index, incarnation)
    record = fleet.request(process, ProcessSpec("worker", index, (index,), 1), now_s)
    for event in (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO, LifecycleEvent.READY, LifecycleEvent.WORK):
        fleet.apply(record, event, now_s)
    return process


def test_time_before_a_worker_was_alone_does_not_count_and_the_record_replays(tmp_path: Path) -> None:
    fleet, noted, path = Fleet(), list[tuple[float, AnyEvent]](), tmp_path / "decisions.jsonl"
    recorder = Recorder(path)
    clock = SimpleNamespace(now_s=0.0)
    run: Any = SimpleNamespace(
        job=SimpleNamespace(supervision=SimpleNamespace(straggler_s=5.0), train=SimpleNamespace(mode="async")),
        fleet=fleet,
        recorder=recorder,
        now_s=lambda: clock.now_s,
        note=lambda event, cause: noted.append((clock.now_s, event)),
    )
    training: Any = SimpleNamespace(has_work=lambda process: True)
    watch = StragglerWatch(run)
    workers = {started(fleet, 0, 1, 0.0): FAST, started(fleet, 1, 1, 0.0): SLOW}
    for second in range(1, 30):
        clock.now_s = float(second)
        if second == 6:
            lost = ProcessId("worker", 0, 1)
            record = fleet.find(lost)
            assert record is not None
            fleet.apply(record, LifecycleEvent.EXIT_OTHER, clock.now_s)
            del workers[lost]
        if second == 8:
            workers[started(fleet, 0, 2, clock.now_s)] = FAST
        for process, rate in workers.items():
            record = fleet.find(process)
            assert record is not None
            sample = StepSample(steps=1, samples=rate, seconds=1.0, compute_s=1.0)
            fleet.heartbeat(record, HeartbeatMsg(second, sample), clock.now_s)
        watch.look(training, SimpleNamespace(), clock.now_s)  # type: ignore[arg-type]
    recorder.close()
    assert [at_s for at_s, _ in noted] == [13.0], "only the five seconds beside its new peer count"
    found = list(replay(read_records(path)))
    assert [one.is_same for one in found] == [True]


def test_looks_without_news_are_recorded_once_a_minute(tmp_path: Path) -> None:
    """An hour of looks at twenty workers; one of them stays slow."""
    fleet, path, clock = Fleet(), tmp_path / "decisions.jsonl", SimpleNamespace(now_s=0.0)
    recorder = Recorder(path)
    noted = Noted()
    run: Any = SimpleNamespace(
        job=SimpleNamespace(supervision=SimpleNamespace(straggler_s=5.0), train=SimpleNamespace(mode="async")),
        fleet=fleet,
        recorder=recorder,
        now_s=lambda: clock.now_s,
        **noted.attributes,
    )
    training: Any = SimpleNamespace(has_work=lambda process: True)
    watch = StragglerWatch(run)
    workers = [started(fleet, index, 1, 0.0) for index in range(20)]
    for second in range(1, 3601):
        clock.now_s = float(second)
        for process in workers:
            record = fleet.find(process)
            assert record is not None
            rate = 120 if process.index == 7 else 200 + (7 * second + 3 * process.index) % 11
            sample = StepSample(steps=1, samples=rate, seconds=1.0, compute_s=0.9)
            fleet.heartbeat(record, HeartbeatMsg(second, sample), clock.now_s)
        watch.look(training, SimpleNamespace(), clock.now_s)  # type: ignore[arg-type]
    recorder.close()
    assert noted.kinds == ["process_slow"]
    records = list(read_records(path))
    assert 60 <= len(records) <= 70
    assert path.stat().st_size < 40_000
    assert [one.is_same for one in replay(records)] == [True]
