"""The scene: what the journal says of a run's processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elastichost.chaos.faults.process_faults import OpenFault
from elastichost.chaos.scene import Scene
from elastichost.chaos.tails import AppliedTail
from elastichost.plan import ProcessId
from elastichost.runs.events import (
    AnyEvent,
    ForkServerLost,
    ForkServerReady,
    HostLost,
    JournalLine,
    PlanChanged,
    ProcessLost,
    ProcessReady,
    ProcessStarted,
    ProcessStartFailed,
    RunEnded,
    RunStarted,
)

SERVER, WORKER, SECOND = ProcessId("server", 0, 1), ProcessId("worker", 0, 1), ProcessId("worker", 1, 1)


def line(event: AnyEvent, at_s: float = 0.0) -> JournalLine:
    return JournalLine("", at_s, event)


def plan_of(*processes: str, reason: str = "cold start") -> JournalLine:
    """A line of the journal: the plan has these processes."""
    workers = sum(name.startswith("worker-") for name in processes)
    return line(PlanChanged(workers, len(processes) - workers, 1, processes, "served", reason))


def lost(process: ProcessId, pid: int, state: str, at_s: float) -> JournalLine:
    """A line of the journal: the process was killed."""
    return line(ProcessLost(process, pid, -9, state, "signal 9 (SIGKILL)"), at_s)


def scene_of(*lines: JournalLine) -> Scene:
    """The scene after these lines of the journal."""
    scene = Scene()
    for one in lines:
        scene.take(one)
    return scene


STARTED = (
    line(RunStarted("ab", "x")),
    line(ForkServerReady(3.0), 1.0),
    plan_of("worker-0", "server-0"),
    line(ProcessStarted(SERVER, 10), 2.0),
    line(ProcessStarted(WORKER, 11), 2.1),
    line(ProcessReady(SERVER), 2.5),
)


def test_a_run_is_whole_when_every_process_of_the_plan_is_ready() -> None:
    scene = scene_of(*STARTED)
    assert not scene.is_whole
    scene.take(line(ProcessReady(WORKER), 3.0))
    assert scene.is_whole
    assert [incarnation.pid for incarnation in scene.working("worker")] == [11]
    assert scene.access == "served"


def test_a_lost_incarnation_no_longer_works_and_its_successor_is_another_incarnation() -> None:
    scene = scene_of(*STARTED, line(ProcessReady(WORKER), 3.0))
    scene.take(lost(WORKER, 11, "running", 4.0))
    assert scene.working("worker") == ()
    scene.take(line(ProcessStarted(ProcessId("worker", 0, 2), 12), 4.1))
    newest = scene.newest("worker-0")
    assert newest is not None
    assert newest.process == ProcessId("worker", 0, 2)
    first = scene.incarnation(WORKER)
    assert first is not None
    assert first.is_lost


def test_a_new_supervisor_begins_without_processes() -> None:
    scene = scene_of(*STARTED, line(RunStarted("cd", "x")))
    assert scene.generation == 2
    assert scene.run_ids == ["ab", "cd"]
    assert scene.newest("server-0") is None
    assert scene.fork_server_ready_s is None


def test_after_a_loss_the_fork_server_is_not_ready_until_the_journal_says_so() -> None:
    scene = scene_of(*STARTED, line(ForkServerLost("signal 9 (SIGKILL)"), 5.0))
    assert scene.fork_servers_lost == 1
    assert scene.fork_server_ready_s is None
    scene.take(line(ForkServerReady(3.0), 9.0))
    assert scene.fork_server_ready_s == 9.0


def test_an_event_changes_only_the_incarnation_it_is_about() -> None:
    """Its sentence may name other incarnations, and an incarnation that never started changes nothing."""
    scene = scene_of(*STARTED, line(ProcessReady(WORKER), 3.0))
    scene.take(line(ProcessLost(WORKER, 11, -9, "running", "server-0.1 had refused it"), 4.0))
    scene.take(line(ProcessStartFailed(ProcessId("worker", 0, 2), "server-0.1 ended meanwhile"), 4.5))
    assert [incarnation.process for incarnation in scene.working("server")] == [SERVER]
    worker = scene.incarnation(WORKER)
    assert worker is not None and worker.is_lost and worker.ended_s == 4.0
    assert scene.newest("worker-0") is worker


def test_the_scene_keeps_how_the_run_ended_until_another_supervisor_begins() -> None:
    scene = scene_of(*STARTED, line(RunEnded("incomplete")))
    assert scene.state == "incomplete"
    scene.take(line(RunStarted("ab", "x")))
    assert scene.state == ""


def test_a_stopped_process_that_is_no_longer_in_the_plan_need_not_come_back() -> None:
    scene = scene_of(
        *STARTED,
        line(ProcessReady(WORKER), 3.0),
        plan_of("worker-0", "worker-1", "server-0", reason="scale workers=2"),
        line(ProcessStarted(SECOND, 12), 4.0),
        line(ProcessReady(SECOND), 4.5),
    )
    incarnation = scene.incarnation(SECOND)
    assert incarnation is not None
    target: Any = SimpleNamespace(scene=scene, applied=AppliedTail(Path("none")), is_sync=False, now_s=lambda: 9.0)
    struck = OpenFault(
        "stop-worker-2x", "worker-1.1", "hang", 5.0, 0, scene.generation, (incarnation,), released_s=11.0
    )
    assert struck.recovered(target) is None
    scene.take(plan_of("worker-0", "server-0", reason="scale workers=1"))
    assert struck.recovered(target) is None, "the process still runs"
    scene.take(lost(SECOND, 12, "draining", 8.0))
    recovered = struck.recovered(target)
    assert recovered is not None
    assert recovered.is_superseded


def test_a_stopped_process_that_is_drained_meanwhile_is_not_a_missed_hang() -> None:
    scene = scene_of(*STARTED, line(ProcessReady(WORKER), 3.0))
    incarnation = scene.incarnation(WORKER)
    assert incarnation is not None
    applied: Any = SimpleNamespace(last_s={(0, 1): 12.0}, first_s={}, newest_s=12.0)
    target: Any = SimpleNamespace(scene=scene, applied=applied, is_sync=False, now_s=lambda: 13.0)
    struck = OpenFault(
        "stop-worker-2x", "worker-0.1", "hang", 5.0, 0, scene.generation, (incarnation,), released_s=11.0
    )
    missed = struck.recovered(target)
    assert missed is not None and missed.is_missed
    scene.take(plan_of("worker-1", "server-0", reason="another worker is wanted"))
    drained = struck.recovered(target)
    assert drained is not None and not drained.is_missed


def test_a_process_of_a_lost_machine_is_superseded_and_the_machine_is_asked_to_join_again() -> None:
    scene = scene_of(*STARTED, line(ProcessReady(WORKER), 3.0))
    incarnation = scene.incarnation(WORKER)
    assert incarnation is not None
    answers: list[int | None] = [None, 0]
    asked: list[str] = []

    def join(name: str) -> Any:
        asked.append(name)
        return lambda: answers.pop(0)

    target: Any = SimpleNamespace(
        scene=scene, applied=AppliedTail(Path("none")), is_sync=False, now_s=lambda: 9.0, join=join
    )
    killed = OpenFault("kill-worker", "worker-0.1", "worker", 5.0, 1, scene.generation, (incarnation,))
    machine = OpenFault("kill-machine", "machine", "machine", 5.0, 1, scene.generation)
    assert killed.recovered(target) is None and machine.recovered(target) is None and not asked
    scene.take(line(HostLost(1, "second", "the other end has closed the connection"), 6.0))
    superseded = killed.recovered(target)
    assert superseded is not None and superseded.is_superseded
    assert machine.recovered(target) is None and asked == ["second"]
    joined = machine.recovered(target)
    assert joined is not None and not joined.is_superseded and asked == ["second"]


def test_a_reader_is_wanted_as_long_as_its_worker() -> None:
    scene = scene_of(*STARTED, line(ProcessStarted(ProcessId("reader", 1, 1), 12), 2.2))
    reader = scene.newest("reader-1")
    assert reader is not None
    assert scene.wants(reader)
    scene.take(plan_of("worker-1", "server-0"))
    assert not scene.wants(reader)
