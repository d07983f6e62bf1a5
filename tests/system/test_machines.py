"""Runs over several machines: agents, gates and keys as over ssh, but all of them here and started without it.

What only emulates hosts shares its directories; here nothing is shared but the address.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastichost.arena.host import arena_root
from elastichost.checkpoint.format import latest
from elastichost.wire.crash import VARIABLE
from tests.system.test_run import ROOT, Supervised, folder
from tests.system.test_scale import SLOW_MODEL, assert_trained_once, scale

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

__all__ = ["folder"]

SAMPLES = 100_000
TABLES, BUCKETS = 4, 16
HOSTS = """
[[hosts]]
transport = "local"
name = "second"
[[hosts]]
transport = "local"
name = "third"
"""


def start(folder: Path, monkeypatch: pytest.MonkeyPatch, *, resume: bool = False, **settings: Any) -> Supervised:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (folder / "hosts.toml").write_text(HOSTS)
    (folder / "slow.py").write_text(SLOW_MODEL)
    facts = {"build": f"{folder}/slow.py:build", "rows": SAMPLES, "epochs": 1, "every_s": 60, **settings}
    return Supervised(folder, resume=resume, **facts)


def pids_of(run: Supervised, role: str) -> dict[str, int]:
    """By the names of the processes."""
    found = run.status().get("processes", [])
    return {f"{role}-{one['index']}": one["pid"] for one in found if one["role"] == role}


def servers_of(run: Supervised) -> dict[str, int]:
    return pids_of(run, "server")


def peers_over_tcp(pid: int) -> set[int]:
    """Local ports of the connections that are open."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_ESTABLISHED}


def assert_done(run: Supervised) -> None:
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert run.result()["test"]["auc"] > 0.6
    assert_trained_once(run)


def test_rows_are_on_all_of_them_and_a_killed_ps_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch, every_s=2)
    run.wait_trained(1)
    assert sorted(servers_of(run)) == ["server-0", "server-1", "server-2"]
    arenas = {path.name.removeprefix(f"elastichost-{os.geteuid()}-")[16:] for path in arena_root().iterdir()}
    assert arenas == {"", "-h1", "-h2", "-h1-double", "-h2-double"}
    elsewhere = servers_of(run)["server-1"]
    assert peers_over_tcp(elsewhere), "workers of other machines, and the supervisor"
    parents = {name: psutil.Process(pid).ppid() for name, pid in pids_of(run, "worker").items()}
    assert parents["worker-0"] == run.process.pid != parents["worker-1"]
    os.kill(elsewhere, signal.SIGKILL)
    run.wait_ready("server-1.2")
    assert_done(run)
    lost = [event.text for event in run.events("process_lost")]
    assert lost == ["server-1.1 was lost while running: signal 9 (SIGKILL)"]
    found = latest(run.run_dir / "checkpoints")
    assert found is not None
    owners = {block.file for block in found.manifest.blocks}
    assert owners == {"server-0.bin", "server-1.bin", "server-2.bin"}
    assert (run.run_dir / "logs" / "server-1.1.log").exists()


def test_killed_workers_of_every_machine_tear_what_they_computed_and_that_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had changed rows of their own machine; how far each had come is known there only."""
    monkeypatch.setenv(VARIABLE, "worker.batch.before_push:10")
    run = start(folder, monkeypatch)
    assert_done(run)
    torn = [(event.process, event.data["life"], event.data["batches"]) for event in run.events("torn_batch")]
    assert sorted(torn) == [("worker-0", 1, 1), ("worker-1", 1, 1)]
    assert run.result()["torn_batches"] == 2
    assert sorted(event.process for event in run.events("process_lost")) == ["worker-0", "worker-1"]


def test_buckets_go_there_and_come_back_over_the_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch)
    run.wait_trained(1)
    fewer = scale(run, servers=1)
    assert fewer.data["buckets_moved"] == pytest.approx(TABLES * BUCKETS * 2 / 3, abs=2)
    more = scale(run, servers=3)
    assert more.data["buckets_moved"] == pytest.approx(TABLES * BUCKETS * 2 / 3, abs=2)
    assert_done(run)
    assert run.events("move_aborted") == [] and run.events("process_lost") == []


def test_a_lost_machine_ends_the_run_which_goes_on_from_its_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(folder, monkeypatch, every_s=1)
    run.wait_trained(1)
    run.wait_until(lambda: run.events("checkpoint"))
    agent = psutil.Process(servers_of(run)["server-2"]).ppid()
    os.kill(agent, signal.SIGKILL)
    code, errors = run.finish()
    assert code == 1
    assert "host third is lost" in errors and "elastichost resume" in errors
    again = start(folder, monkeypatch, resume=True)
    code, errors = again.finish()
    assert code == 0, errors
    assert again.result()["samples"]["trained"] == SAMPLES
    assert any("goes on from the checkpoint" in event.text for event in again.events("decision"))


def test_what_is_wrong_with_any_machine_is_told_before_anything_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.system.test_machines.HOSTS", HOSTS + 'python = "/bin/false"\n')
    refused = start(folder, monkeypatch)
    code, errors = refused.finish()
    assert code == 3
    assert "not all hosts can be used" in errors and "third: its output has ended" in errors
    assert not refused.run_dir.exists()
