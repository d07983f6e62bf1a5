"""Runs that grow and shrink while they train: the other processes continue, and every sample is trained once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from elastichost.plan import ProcessId
from elastichost.ps.applied_log import read_applied
from elastichost.runs.decisions import DECISIONS_FILE, read_records
from elastichost.runs.events import (
    CheckpointAbandoned,
    CheckpointWritten,
    CommandRefused,
    LeaseGranted,
    PlanChanged,
    PlanReached,
    ProcessDraining,
    ProcessRepinned,
    RunStarted,
    TunerOnlyWatches,
)
from elastichost.tuner.replay import replay
from elastichost.wire.commands import AcceptedMsg, CommandClient, ReachedMsg, RefusedMsg, Reply, ScaleMsg
from tests.system.journals import Kind
from tests.system.test_run import JOB, LIMIT_S, ROOT, Supervised, folder

pytestmark = pytest.mark.system

__all__ = ["folder"]

ONE_WORKER = JOB.replace("workers = 2", "workers = 1")
SAMPLES = 300_000
# An epoch takes a minimum time on any machine.
SLOW_MODEL = """
import time

from elastichost.models import dlrm


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(lambda *_: time.sleep(0.005))
    return model
"""


class Moving(Supervised):
    """A run in which every change of the PS replaces all PS."""

    module = "tests.system.supervise_and_move"


def begin(folder: Path, access: str, kind: type[Supervised] = Supervised, **settings: Any) -> Supervised:
    """Starts a run of one worker with more epochs than it can finish."""
    (folder / "slow.py").write_text(SLOW_MODEL)
    template = ONE_WORKER.replace("[train]\n", f'[train]\naccess = "{access}"\n')
    facts = {"build": f"{folder}/slow.py:build", "rows": 50_000, "epochs": 10_000, **settings}
    run = kind(folder, template=template, **facts)
    run.wait_trained(1)
    return run


@contextmanager
def commands_of(run: Supervised) -> Iterator[CommandClient]:
    client = CommandClient(str(run.wait_until(lambda: run.status().get("commands"))))
    try:
        yield client
    finally:
        client.close()


def reply_to(client: CommandClient) -> Reply:
    reply = client.receive(LIMIT_S)
    assert reply is not None
    return reply


def scale(run: Supervised, **counts: int) -> ReachedMsg:
    """Sends a scale command; returns when the run has the new size."""
    with commands_of(run) as client:
        client.send(ScaleMsg(**counts))
        assert isinstance(reply_to(client), AcceptedMsg)
        reached = reply_to(client)
    assert isinstance(reached, ReachedMsg), reached
    return reached


def stop(run: Supervised) -> None:
    """Stops a run and checks that all its trained samples were trained once."""
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors
    assert_trained_once(run)


def assert_trained_once(run: Supervised) -> None:
    """Checks that the epochs before the last have no gap and no epoch has duplicates, and that the log of the PS agrees
    with the supervisor."""
    samples, rows = run.result()["samples"], read_applied(run.run_dir)
    applied = np.sort(rows[rows["samples"] > 0], order=("epoch", "unit", "start"))
    assert int(applied["samples"].sum()) == samples["trained"]
    last = int(applied["epoch"].max())
    for epoch, unit in np.unique(applied[["epoch", "unit"]]).tolist():
        ranges = applied[(applied["epoch"] == epoch) & (applied["unit"] == unit)]
        assert (ranges["start"][1:] >= ranges["stop"][:-1]).all()
        if epoch < last:
            assert ranges["start"].tolist() == [0, *ranges["stop"][:-1].tolist()]


def names(run: Supervised) -> set[str]:
    return {f"{one['role']}-{one['index']}" for one in run.status().get("processes", [])}


@pytest.mark.parametrize("access", ["direct", pytest.param("served", marks=pytest.mark.thorough)])
def test_out_and_in_within_one_epoch(folder: Path, access: str) -> None:
    run = begin(folder, access, rows=SAMPLES, epochs=1)
    grown = scale(run, workers=3)
    run.wait_until(lambda: names(run) == {"worker-0", "worker-1", "worker-2", "server-0"})
    first = grown.data["request_to_first_sample_s"]
    assert isinstance(first, dict) and set(first) == {"worker-1", "worker-2"}
    assert all(at_s is not None and at_s > 0 for at_s in first.values())
    spread = scale(run, servers=2)
    run.wait_until(lambda: "server-1" in names(run))
    assert spread.data["buckets_moved"] == 4 * 16 // 2
    shrunk = scale(run, workers=1, servers=1)
    assert (shrunk.data["workers_after"], shrunk.data["servers_after"], shrunk.data["buckets_moved"]) == (1, 1, 32)
    run.wait_until(lambda: names(run) == {"worker-0", "server-0"})
    scale(run, workers=3)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert_trained_once(run)
    assert run.lost() == []
    assert run.result()["processes"] == {"workers": 3, "servers": 1, "restarts": 0}
    assert len(run.events(PlanReached)) == 4
    assert run.events(CheckpointAbandoned) == []
    assert {event.process.name for event in run.events(LeaseGranted)} == {"worker-0", "worker-1", "worker-2"}


@pytest.mark.parametrize(
    ("point", "access"),
    [
        ("before_release", "served"),
        pytest.param("after_release", "served", marks=pytest.mark.thorough),
        pytest.param("after_adopt", "served", marks=pytest.mark.thorough),
        pytest.param("after_release", "direct", marks=pytest.mark.thorough),
    ],
)
def test_a_ps_killed_within_a_hand_over(folder: Path, monkeypatch: pytest.MonkeyPatch, point: str, access: str) -> None:
    """Growing kills the old owner, which has the dense vector, or the new owner; shrinking kills the opposite one."""
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", f"ps.handover.{point}")
    run = begin(folder, access)
    scale(run, workers=2, servers=2)
    scale(run, servers=1)
    scale(run, workers=1)
    stop(run)
    lost = {(event.process, event.code) for event in run.lost()}
    assert lost == {(ProcessId("server", 0, 1), -9), (ProcessId("server", 1, 1), -9)}


@pytest.mark.thorough
def test_the_dense_owner_killed_while_ps_come_and_go(folder: Path) -> None:
    run = begin(folder, "served", restarts=20)
    for servers in (3, 1, 2):
        with commands_of(run) as client:
            client.send(ScaleMsg(servers=servers))
            os.kill(run.pid("server-0"), signal.SIGKILL)
            assert isinstance(reply_to(client), AcceptedMsg)
            assert isinstance(reply_to(client), ReachedMsg)
    stop(run)


@pytest.mark.thorough
@pytest.mark.parametrize("access", ["direct", "served"])
def test_the_dense_vector_moves_while_workers_and_its_old_and_new_owner_die(folder: Path, access: str) -> None:
    run = begin(folder, access, kind=Moving, restarts=20)
    for servers, victims in ((2, ("worker-0",)), (2, ("server-1", "worker-0")), (1, ("server-3",))):
        pids = [run.pid(victim) for victim in victims]
        with commands_of(run) as client:
            client.send(ScaleMsg(servers=servers))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            assert isinstance(reply_to(client), AcceptedMsg)
            assert isinstance(reply_to(client), ReachedMsg)
    run.wait_until(lambda: names(run) == {"worker-0", "server-5"})
    stop(run)


@pytest.mark.thorough
def test_scaled_while_checkpoints_are_taken(folder: Path) -> None:
    run = begin(folder, "direct", every_s=0.2)
    for servers, workers in ((2, 2), (3, 1), (1, 2)):
        scale(run, servers=servers, workers=workers)
    stop(run)
    assert len(run.events(CheckpointWritten)) > 2
    assert run.events(CheckpointAbandoned) == []


def test_wanted_again_while_it_drains_is_a_new_incarnation_and_no_death(folder: Path) -> None:
    run = begin(folder, "direct")
    scale(run, workers=2)
    with commands_of(run) as first, commands_of(run) as second:
        first.send(ScaleMsg(workers=1))
        assert isinstance(reply_to(first), AcceptedMsg)
        first_incarnation = ProcessId("worker", 1, 1)
        run.wait_until(lambda: first_incarnation in [event.process for event in run.events(ProcessDraining)])
        second.send(ScaleMsg(workers=2))
        assert reply_to(first) == RefusedMsg("another plan change replaced this one before it was done")
        assert isinstance(reply_to(second), AcceptedMsg)
        reached = reply_to(second)
    assert isinstance(reached, ReachedMsg)
    assert ProcessId("worker", 1, 2) in run.ready()
    stop(run)
    assert run.lost() == []
    assert run.result()["processes"]["restarts"] == 0


@pytest.mark.thorough
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_remaining_processes_move_to_other_cores(folder: Path) -> None:
    run = begin(folder, "direct")
    pid = run.pid("worker-0")
    assert len(os.sched_getaffinity(pid)) == len(os.sched_getaffinity(0))
    scale(run, workers=len(os.sched_getaffinity(0)))
    (moved,) = [event for event in run.events(ProcessRepinned) if event.process.name == "worker-0"]
    threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset(moved.cores)}
    assert len(moved.cores) == 1
    scale(run, workers=1, worker_cores=2)
    assert len(os.sched_getaffinity(pid)) >= 2
    assert run.pid("worker-0") == pid
    stop(run)


def command_line(run: Supervised, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "elastichost", "scale", str(run.run_dir), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def send_garbage(run: Supervised) -> None:
    """Sends invalid commands; each gets an answer and has no effect."""
    address = run.wait_until(lambda: run.status().get("commands"))
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        for garbage in (b"", b"{}", b'{"type":"Halt"}', b'{"type":"ScaleMsg","workers":"3"}', b"\xff" * 60_000):
            socket.send(garbage)
            assert socket.poll(int(LIMIT_S * 1000))
            assert b"Refused" in socket.recv()
        socket.send_multipart([b'{"type":"ScaleMsg","workers":2}', b"more"])
        assert socket.poll(int(LIMIT_S * 1000))
        assert b"Refused" in socket.recv()
        socket.send(b"x" * 1_000_000)  # too large: the connection is closed
    run.wait_until(lambda: len(run.events(CommandRefused)) >= 6)  # each event is written after the answer


@pytest.mark.thorough
def test_the_command_line_garbage_and_a_run_that_ends(folder: Path) -> None:
    run = begin(folder, "direct")
    send_garbage(run)
    done = command_line(run, "workers=2", "--json")
    assert done.returncode == 0, done.stderr
    assert '"status":"reached"' in done.stdout and '"workers_after":2' in done.stdout
    assert '"cause":"scale-1.' in (run.run_dir / "journal.jsonl").read_text()
    assert "already" in command_line(run, "workers=2").stdout
    assert command_line(run, "workers=1000").returncode == 2
    accepted = command_line(run, "workers=1", "--no-wait")
    assert (accepted.returncode, accepted.stdout) == (0, "new plan: 1 worker and 1 PS\n")
    os.kill(run.pid("worker-0"), signal.SIGSTOP)  # it will not drain, so the run does not end yet
    run.process.send_signal(signal.SIGINT)
    run.wait_until(run.was_asked_to_stop)
    stopping = command_line(run, "workers=3")
    assert stopping.returncode == 3
    assert "the run was asked to stop" in stopping.stderr
    run.process.send_signal(signal.SIGINT)
    run.finish()
    ended = command_line(run, "workers=3")
    assert ended.returncode == 3
    assert "is not running" in ended.stderr


@pytest.mark.thorough
def test_a_command_that_comes_before_there_are_owners_waits_until_there_are(folder: Path) -> None:
    template = ONE_WORKER.replace("[resources]\n", "[resources]\nservers = 2\n")
    run = Supervised(folder, template=template, rows=SAMPLES)
    with commands_of(run) as client:
        client.send(ScaleMsg(servers=1))
        code, errors = run.finish()
        assert isinstance(reply_to(client), AcceptedMsg)
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == SAMPLES
    assert run.result()["processes"]["servers"] == 1


@pytest.mark.thorough
def test_a_resumed_run_has_the_size_that_was_asked_for(folder: Path) -> None:
    """This holds for a size that the job file leaves open."""
    template = JOB.replace("workers = 2", "workers = [1, 3]")
    template = template.replace('mode = "off"', 'mode = "act"\nwarm_start = false')
    (folder / "slow.py").write_text(SLOW_MODEL)
    facts = {"build": f"{folder}/slow.py:build", "rows": 50_000, "epochs": 10_000}
    run = Supervised(folder, template=template, **facts)
    run.wait_trained(1)
    scale(run, workers=3, servers=2)
    stop(run)
    again = Supervised(folder, template=template, resume=True, **facts)
    again.wait_until(lambda: names(again) == {"worker-0", "worker-1", "worker-2", "server-0", "server-1"})
    again.wait_until(lambda: of_session(again, 2, TunerOnlyWatches))
    stop(again)
    plans = of_session(again, 2, PlanChanged)
    assert plans[0].reason == "same size as before the run was resumed, requested with `scale`: 3 workers, 2 PS"
    assert {event.workers for event in plans} == {3, 0}
    assert all(one.is_same for one in replay(read_records(run.run_dir / DECISIONS_FILE)))


def of_session(run: Supervised, number: int, kind: type[Kind]) -> list[Kind]:
    """Events of a kind since the start of the `number`th supervisor."""
    events = [line.event for line in run.lines()]
    began = [place for place, event in enumerate(events) if isinstance(event, RunStarted)]
    return [e for e in events[began[number - 1] :] if isinstance(e, kind)] if len(began) >= number else []
