"""Runs on several hosts with separate arenas: buckets migrate between them while the job trains.

Every sample is trained once, migrated rows keep their bits, and a death during a migration loses nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from elastichost.arena.host import arena_root
from elastichost.chaos.hand_overs import check_hand_overs, read_audit
from elastichost.plan import ProcessId
from elastichost.ps.audit import AUDIT_VARIABLE
from elastichost.runs.events import (
    ArenaRejected,
    BucketsMoved,
    BucketsMoving,
    CheckpointAbandoned,
    CheckpointWritten,
    MoveAborted,
)
from elastichost.wire.commands import AcceptedMsg, RefusedMsg, ScaleMsg
from elastichost.wire.crash import POINTS, VARIABLE
from tests.system import test_sync
from tests.system.test_run import JOB, Supervised, folder
from tests.system.test_scale import SLOW_MODEL, assert_trained_once, commands_of, reply_to, scale, stop

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(300)]

__all__ = ["folder"]

SAMPLES = 150_000
HOSTS = (
    JOB.replace("workers = 2", "workers = {workers}\nhosts = 2\nservers = {servers}")
    .replace("[train]\n", '[train]\nmode = "{mode}"\nmicro_batches = 4\n')
    .replace("table_rows = 500", "table_rows = {ids}")
    .replace('rows = "dynamic"', "rows = {table_rows}")
)
FIXED, DYNAMIC = "20_000", '"dynamic"'
POINTS_OF_PS = [point.name for point in POINTS if point.name.startswith("ps.move.")]
POINTS_OF_SUPERVISOR = [point.name for point in POINTS if point.name.startswith("supervisor.move.")]


def start(folder: Path, *, resume: bool = False, **settings: Any) -> Supervised:
    pause_s = settings.pop("pause_s", 0.005)
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.005", str(pause_s)))
    facts = {"build": f"{folder}/slow.py:build", "rows": 50_000, "epochs": 10_000, "workers": 1, "servers": 1}
    facts |= {"mode": "async", "ids": 20_000, "table_rows": DYNAMIC, **settings}
    return Supervised(folder, resume=resume, template=HOSTS, **facts)


def begin(folder: Path, **settings: Any) -> Supervised:
    """Starts a run with more epochs than it can finish, unless the settings say otherwise."""
    run = start(folder, **settings)
    run.wait_trained(1)
    return run


def assert_same_bits(run: Supervised) -> None:
    verdict = check_hand_overs(read_audit(run.run_dir), "served")
    assert verdict.holds, verdict


@pytest.mark.parametrize(("table_rows", "mode"), [(DYNAMIC, "async"), (FIXED, "async"), (DYNAMIC, "bounded")])
def test_out_and_in_within_one_epoch(folder: Path, monkeypatch: pytest.MonkeyPatch, table_rows: str, mode: str) -> None:
    monkeypatch.setenv(AUDIT_VARIABLE, "1")
    run = begin(folder, rows=SAMPLES, epochs=1, workers=2, table_rows=table_rows, mode=mode)
    arenas = os.listdir(arena_root())
    assert sorted(name.endswith("-h1") for name in arenas) == [False, True]
    grown = scale(run, servers=2)
    assert grown.data["buckets_moved"] == 4 * 16 // 2
    shrunk = scale(run, servers=1)
    assert shrunk.data["buckets_moved"] == 4 * 16 // 2
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert_trained_once(run)
    assert_same_bits(run)
    assert run.lost() == []
    assert [event.buckets for event in run.events(BucketsMoved)] == [32, 32]
    assert all(event.bytes > 0 for event in run.events(BucketsMoved))
    assert run.events(MoveAborted) == []


def test_several_hosts_from_the_beginning_and_checkpoints_meanwhile(folder: Path) -> None:
    run = begin(folder, servers=3, every_s=0.3, workers=2)
    for servers in (1, 4, 2):
        scale(run, servers=servers)
    stop(run)
    assert len(run.events(CheckpointWritten)) > 2
    assert run.events(CheckpointAbandoned) == []


@pytest.mark.parametrize("point", POINTS_OF_PS)
def test_a_ps_killed_within_a_move(folder: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Growing kills the old or the new owner of the buckets; shrinking kills the opposite one."""
    monkeypatch.setenv(AUDIT_VARIABLE, "1")
    monkeypatch.setenv(VARIABLE, f"{point}:2" if "mid_copy" in point else point)
    run = begin(folder, workers=2)
    scale(run, servers=2)
    scale(run, servers=1)
    scale(run, workers=1)
    stop(run)
    lost = {(event.process, event.code) for event in run.lost()}
    assert lost == {(ProcessId("server", 0, 1), -9), (ProcessId("server", 1, 1), -9)}
    assert_same_bits(run)


@pytest.mark.parametrize("point", POINTS_OF_SUPERVISOR)
def test_a_supervisor_killed_about_the_commit_of_a_move(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A run on several hosts resumes from a checkpoint and reports that."""
    monkeypatch.setenv(VARIABLE, point)
    facts = {"rows": SAMPLES, "epochs": 1, "workers": 2, "every_s": 0.3}
    run = begin(folder, **facts)
    run.wait_until(lambda: run.events(CheckpointWritten))
    with commands_of(run) as client:
        client.send(ScaleMsg(servers=2))
        assert isinstance(reply_to(client), AcceptedMsg)
        code, _ = run.finish()
    assert code == -signal.SIGKILL
    assert len(run.events(BucketsMoved)) == (1 if point.endswith("after_commit") else 0)
    run = start(folder, resume=True, **facts)
    code, errors = run.finish()
    assert code == 0, errors
    assert any("its rows lay in the arenas of 2 hosts" in event.reason for event in run.events(ArenaRejected))
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert_trained_once(run)


def test_a_plan_that_changes_while_buckets_are_on_their_way(folder: Path) -> None:
    run = begin(folder, workers=2, ids=100_000)
    with commands_of(run) as first, commands_of(run) as second:
        first.send(ScaleMsg(servers=4))
        assert isinstance(reply_to(first), AcceptedMsg)
        run.wait_until(lambda: run.events(BucketsMoving))
        second.send(ScaleMsg(servers=1))
        assert isinstance(reply_to(first), RefusedMsg)
        assert isinstance(reply_to(second), AcceptedMsg)
        reply_to(second)
    scale(run, servers=2)
    stop(run)
    assert run.lost() == []


def test_workers_killed_while_buckets_move(folder: Path) -> None:
    run = begin(folder, workers=2, restarts=20)
    for servers in (2, 1):
        pid = run.pid("worker-0")
        with commands_of(run) as client:
            client.send(ScaleMsg(servers=servers))
            os.kill(pid, signal.SIGKILL)
            assert isinstance(reply_to(client), AcceptedMsg)
            reply_to(client)
    stop(run)


def test_stopped_while_buckets_are_on_their_way_and_resumed(folder: Path) -> None:
    facts = {"rows": SAMPLES, "epochs": 1, "workers": 2, "ids": 100_000}
    run = begin(folder, **facts)
    with commands_of(run) as client:
        client.send(ScaleMsg(servers=2))
        assert isinstance(reply_to(client), AcceptedMsg)
        run.wait_until(lambda: run.events(BucketsMoving))
        run.process.send_signal(signal.SIGINT)
        code, errors = run.finish()
    assert code == 75, errors
    run = start(folder, resume=True, **facts)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert_trained_once(run)


def test_sync_has_the_same_bits_wherever_the_rows_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = test_sync.trained(folder, "plain")
    for name, points in (("moved", ""), ("killed", "ps.move.target_mid_copy:5,ps.move.source_before_forget")):
        monkeypatch.setenv(VARIABLE, points)
        place = folder / name
        place.mkdir()
        run = begin(place, mode="sync", rows=test_sync.SAMPLES, epochs=1, workers=2, ids=500, pause_s=0.02)
        scale(run, servers=2)
        scale(run, servers=1)
        code, errors = run.finish()
        assert code == 0, errors
        assert len(run.events(BucketsMoved)) == 2
        assert bool(run.lost()) == bool(points)
        assert test_sync.outcome(run.run_dir) == expected
