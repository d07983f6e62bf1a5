"""What the journal says of the processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elastichost.chaos.faults import Open
from elastichost.chaos.scene import Scene, process_of
from elastichost.chaos.tails import AppliedTail
from elastichost.metrics import JournalEvent, JournalValue
from elastichost.plan import ProcessId


def event(kind: str, text: str, at_s: float = 0.0, **data: JournalValue) -> JournalEvent:
    return JournalEvent("", at_s, kind, text, "", dict(data))


def scene_of(*events: JournalEvent) -> Scene:
    scene = Scene()
    for one in events:
        scene.take(one)
    return scene


STARTED = (
    event("run_started", "run x", run_id="ab"),
    event("fork_server", "libraries imported in 3.0 s", 1.0),
    event("decision", "plan: cold start", processes=["worker-0", "server-0"], access="served"),
    event("process_started", "server-0.1 has pid 10", 2.0, pid=10),
    event("process_started", "worker-0.1 has pid 11", 2.1, pid=11),
    event("ready", "server-0.1 is ready", 2.5),
)


def test_a_run_is_whole_when_every_process_of_the_plan_is_ready() -> None:
    scene = scene_of(*STARTED)
    assert not scene.is_whole
    scene.take(event("ready", "worker-0.1 is ready", 3.0))
    assert scene.is_whole
    assert [life.pid for life in scene.working("worker")] == [11]
    assert scene.access == "served"


def test_a_lost_life_works_no_more_and_its_successor_is_another() -> None:
    scene = scene_of(*STARTED, event("ready", "worker-0.1 is ready", 3.0))
    scene.take(event("process_lost", "worker-0.1 was lost while running: signal 9 (SIGKILL)", 4.0))
    assert scene.working("worker") == ()
    scene.take(event("process_started", "worker-0.2 has pid 12", 4.1, pid=12))
    newest = scene.newest("worker-0")
    assert newest is not None
    assert newest.process == ProcessId("worker", 0, 2)
    first = scene.life(ProcessId("worker", 0, 1))
    assert first is not None
    assert first.is_lost


def test_another_supervisor_begins_with_nobody() -> None:
    scene = scene_of(*STARTED, event("run_started", "run x", run_id="cd"))
    assert scene.generation == 2
    assert scene.run_ids == ["ab", "cd"]
    assert scene.newest("server-0") is None
    assert scene.fork_server_ready_s is None


def test_a_lost_fork_server_is_not_ready_until_it_says_so() -> None:
    scene = scene_of(*STARTED, event("fork_server_lost", "the fork server ended", 5.0))
    assert scene.fork_servers_lost == 1
    assert scene.fork_server_ready_s is None
    scene.take(event("fork_server", "libraries imported in 3.0 s", 9.0))
    assert scene.fork_server_ready_s == 9.0


def test_the_life_an_event_is_about_is_the_first_its_text_names() -> None:
    assert process_of(event("x", "start worker-12.3: server-0.1 ended")) == ProcessId("worker", 12, 3)
    assert process_of(event("x", "worker-1 is no life")) is None


def test_a_process_that_was_stopped_and_is_not_wanted_any_more_need_not_come_back() -> None:
    scene = scene_of(
        *STARTED,
        event("ready", "worker-0.1 is ready", 3.0),
        event("decision", "plan: asked for workers=2", processes=["worker-0", "worker-1", "server-0"]),
        event("process_started", "worker-1.1 has pid 12", 4.0, pid=12),
        event("ready", "worker-1.1 is ready", 4.5),
    )
    life = scene.life(ProcessId("worker", 1, 1))
    assert life is not None
    target: Any = SimpleNamespace(scene=scene, applied=AppliedTail(Path("none")), is_sync=False, now_s=lambda: 9.0)
    struck = Open("stop-worker-2x", "worker-1.1", "hang", 5.0, 0, scene.generation, (life,), released_s=11.0)
    assert struck.recovered(target) is None
    scene.take(event("decision", "plan: asked for workers=1", processes=["worker-0", "server-0"]))
    assert struck.recovered(target) is None, "it is still there"
    scene.take(event("process_lost", "worker-1.1 was lost while draining: signal 9 (SIGKILL)", 8.0))
    recovered = struck.recovered(target)
    assert recovered is not None
    assert recovered.is_superseded


def test_a_stopped_process_that_is_drained_meanwhile_was_not_overlooked() -> None:
    scene = scene_of(*STARTED, event("ready", "worker-0.1 is ready", 3.0))
    life = scene.life(ProcessId("worker", 0, 1))
    assert life is not None
    applied: Any = SimpleNamespace(last_s={(0, 1): 12.0}, first_s={}, newest_s=12.0)
    target: Any = SimpleNamespace(scene=scene, applied=applied, is_sync=False, now_s=lambda: 13.0)
    struck = Open("stop-worker-2x", "worker-0.1", "hang", 5.0, 0, scene.generation, (life,), released_s=11.0)
    missed = struck.recovered(target)
    assert missed is not None and missed.is_missed
    scene.take(event("decision", "plan: another worker is wanted", processes=["worker-1", "server-0"]))
    drained = struck.recovered(target)
    assert drained is not None and not drained.is_missed


def test_who_was_on_a_machine_that_is_lost_does_not_come_back_and_the_machine_is_asked_again() -> None:
    scene = scene_of(*STARTED, event("ready", "worker-0.1 is ready", 3.0))
    life = scene.life(ProcessId("worker", 0, 1))
    assert life is not None
    answers: list[int | None] = [None, 0]
    asked: list[str] = []

    def join(name: str) -> Any:
        asked.append(name)
        return lambda: answers.pop(0)

    target: Any = SimpleNamespace(
        scene=scene, applied=AppliedTail(Path("none")), is_sync=False, now_s=lambda: 9.0, join=join
    )
    killed = Open("kill-worker", "worker-0.1", "worker", 5.0, 1, scene.generation, (life,))
    machine = Open("kill-machine", "machine", "machine", 5.0, 1, scene.generation)
    assert killed.recovered(target) is None and machine.recovered(target) is None and not asked
    scene.take(event("host_lost", "host second: its output has ended", 6.0, host=1, name="second"))
    superseded = killed.recovered(target)
    assert superseded is not None and superseded.is_superseded
    assert machine.recovered(target) is None and asked == ["second"]
    joined = machine.recovered(target)
    assert joined is not None and not joined.is_superseded and asked == ["second"]
