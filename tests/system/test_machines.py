"""Runs on several machines with agents, sockets and keys as over ssh, but all on this machine and without ssh.

Emulated hosts share directories; these machines share only the address.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import psutil
import pytest

import elastichost as eh
from elastichost.arena.host import arena_root
from elastichost.checkpoint.format import latest
from elastichost.config.hosts import HostsFile, read_hosts
from elastichost.plan import ProcessId
from elastichost.runs.decisions import read_records
from elastichost.runs.events import (
    ArenaOpened,
    BatchTorn,
    BucketsMoved,
    CheckpointMirrored,
    CheckpointWritten,
    HostJoined,
    HostLost,
    MoveAborted,
    PlanChanged,
    RowsRolledBack,
)
from elastichost.runs.events.text import text_of
from elastichost.tuner.records import BalanceLooked
from elastichost.wire.commands import AcceptedMsg, JoinMsg, ReachedMsg, RefusedMsg, Reply
from elastichost.wire.crash import VARIABLE
from tests.system.test_balance import Lopsided
from tests.system.test_run import JOB, ROOT, Supervised, folder
from tests.system.test_scale import SLOW_MODEL, assert_trained_once, commands_of, reply_to, scale, stop
from tests.system.test_sync import SAMPLES as SYNC_SAMPLES
from tests.system.test_sync import TEMPLATE as SYNC
from tests.system.test_sync import outcome, trained

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


def start(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    resume: bool = False,
    kind: type[Supervised] = Supervised,
    **settings: Any,
) -> Supervised:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (folder / "hosts.toml").write_text(HOSTS)
    (folder / "slow.py").write_text(SLOW_MODEL)
    facts = {"build": f"{folder}/slow.py:build", "rows": SAMPLES, "epochs": 1, "every_s": 60, **settings}
    return kind(folder, resume=resume, **facts)


def pids_of(run: Supervised, role: str) -> dict[str, int]:
    """The pids of a role's processes by process name."""
    found = run.status().get("processes", [])
    return {f"{role}-{one['index']}": one["pid"] for one in found if one["role"] == role}


def servers_of(run: Supervised) -> dict[str, int]:
    return pids_of(run, "server")


def peers_over_tcp(pid: int) -> set[int]:
    """The local ports of open connections of a process."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_ESTABLISHED}


def assert_done(run: Supervised) -> None:
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert run.result()["test"]["auc"] > 0.6
    assert_trained_once(run)


@pytest.mark.thorough
def test_rows_are_on_all_of_them_and_a_killed_ps_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch, every_s=2)
    run.wait_trained(1)
    assert sorted(servers_of(run)) == ["server-0", "server-1", "server-2"]
    arenas = {path.name.removeprefix(f"elastichost-{os.geteuid()}-")[16:] for path in arena_root().iterdir()}
    assert arenas == {"", "-h1", "-h2", "-h1-replica", "-h2-replica"}
    elsewhere = servers_of(run)["server-1"]
    assert peers_over_tcp(elsewhere), "workers of other machines and the supervisor must be connected"
    parents = {name: psutil.Process(pid).ppid() for name, pid in pids_of(run, "worker").items()}
    assert parents["worker-0"] == run.process.pid != parents["worker-1"]
    os.kill(elsewhere, signal.SIGKILL)
    run.wait_ready("server-1.2")
    assert_done(run)
    (lost,) = run.lost()
    assert text_of(lost) == "server-1.1 exited in state running: signal 9 (SIGKILL)"
    found = latest(run.run_dir / "checkpoints")
    assert found is not None
    owners = {block.file for block in found.manifest.blocks}
    assert owners == {"server-0.bin", "server-1.bin", "server-2.bin"}
    assert (run.run_dir / "logs" / "server-1.1.log").exists()


@pytest.mark.thorough
def test_killed_workers_of_every_machine_tear_what_they_computed_and_that_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed workers had changed rows of their own machine; their watermarks exist only there."""
    monkeypatch.setenv(VARIABLE, "worker.batch.before_push:10")
    run = start(folder, monkeypatch)
    assert_done(run)
    first_incarnations = [ProcessId("worker", 0, 1), ProcessId("worker", 1, 1)]
    torn = [(event.process, event.batches) for event in run.events(BatchTorn)]
    assert sorted(torn) == [(process, 1) for process in first_incarnations]
    assert run.result()["torn_batches"] == 2
    assert sorted(event.process for event in run.lost()) == first_incarnations


@pytest.mark.thorough
def test_a_stopped_process_on_another_machine_is_detected_as_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reports the state of the process from the kernel."""
    run = start(folder, monkeypatch, epochs=10_000)
    run.wait_trained(1)
    os.kill(servers_of(run)["server-1"], signal.SIGSTOP)
    run.wait_ready("server-1.2")
    stop(run)
    (lost,) = run.lost()
    assert lost.process == ProcessId("server", 1, 1)
    assert "it is stopped by a signal" in lost.reason


@pytest.mark.thorough
def test_tables_of_fixed_size_are_not_limited_there_either(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch, template=JOB.replace('rows = "dynamic"', "rows = 500"))
    assert_done(run)
    assert run.lost() == []


@pytest.mark.thorough
def test_buckets_go_there_and_come_back_over_the_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch, epochs=10_000)  # more than it can finish
    run.wait_trained(1)
    fewer = scale(run, servers=1)
    assert fewer.data["buckets_moved"] == pytest.approx(TABLES * BUCKETS * 2 / 3, abs=2)
    more = scale(run, servers=3)
    assert more.data["buckets_moved"] == pytest.approx(TABLES * BUCKETS * 2 / 3, abs=2)
    stop(run)
    assert run.events(MoveAborted) == [] and run.lost() == []


@pytest.mark.thorough
def test_hot_buckets_go_to_other_machines_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first nearly all rows are on this machine. A PS gets requests only from workers of other machines."""

    def looks() -> list[BalanceLooked]:
        return [one for one in read_records(run.run_dir / "decisions.jsonl") if isinstance(one, BalanceLooked)]

    def is_balanced_since() -> bool:
        moved = [number for number, one in enumerate(looks()) if one.moves and one.was_begun]
        return bool(moved) and "balanced" in [one.kind for one in looks()[moved[-1] :]]

    run = start(folder, monkeypatch, kind=Lopsided, epochs=10_000)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(BucketsMoved))
    run.wait_until(is_balanced_since)
    stop(run)
    (begun,) = (one for one in looks() if one.moves and one.was_begun)
    assert begun.speeds[2] == 1.0, "both workers send requests to it"
    assert sum(1.0 / begun.speeds[server] for server in (0, 1)) == pytest.approx(1.0), "one worker each uses these"
    assert {server for _, _, server in begun.moves} >= {1, 2}
    (moved,) = run.events(BucketsMoved)
    assert moved.buckets == len(begun.moves)
    assert run.events(MoveAborted) == [] and run.lost() == []


def lose_machine_of(run: Supervised, name: str) -> None:
    """Kills the agent of the machine of that PS, and with it all processes of that machine."""
    os.kill(psutil.Process(servers_of(run)[name]).ppid(), signal.SIGKILL)


def test_a_lost_machine_costs_what_its_rows_learnt_since_the_checkpoint_and_no_sample(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(folder, monkeypatch, every_s=1)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    saved = run.events(CheckpointWritten)[-1]
    lose_machine_of(run, "server-2")
    run.wait_until(lambda: run.events(RowsRolledBack))
    assert_done(run)
    (lost,) = run.result()["lost_hosts"]
    assert lost["name"] == "third" and lost["checkpoint"]
    assert lost["buckets"] == pytest.approx(TABLES * BUCKETS / 3, abs=2)
    assert lost["rows"] >= lost["rows_restored"] > 0
    assert 0 <= lost["samples"] < SAMPLES - saved.samples
    assert run.status()["processes"] == [] or "server-2" not in servers_of(run)
    assert run.result()["rolled_back"] == []
    assert run.events(BucketsMoved), "the buckets that host 0 took over are distributed again"
    assert run.result()["processes"]["restarts"] == 0


@pytest.mark.thorough
def test_a_machine_is_lost_before_there_is_any_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch)
    run.wait_trained(1)
    lose_machine_of(run, "server-1")
    assert_done(run)
    (lost,) = run.result()["lost_hosts"]
    assert (lost["name"], lost["checkpoint"]) == ("second", "")
    assert lost["samples"] > 0


@pytest.mark.thorough
def test_sync_mode_has_the_same_bits_on_several_machines_and_when_one_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In sync mode, the loss of a machine rolls the whole run back to its checkpoint."""
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.005", "0.03"))  # leaves time to lose a machine
    build = f"{folder}/slow.py:build"
    expected = trained(folder, "plain", build=build)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = folder / "machines"
    place.mkdir()
    (place / "hosts.toml").write_text(HOSTS)
    facts = {"micro_batches": 4, "workers": 3, "servers": 3, "rows": SYNC_SAMPLES, "every_s": 0.5, "build": build}
    run = Supervised(place, template=SYNC, **facts)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    lose_machine_of(run, "server-2")
    code, errors = run.finish()
    assert code == 0, errors
    (back,) = run.result()["rolled_back"]
    assert back["checkpoint"] and (back["start"], back["stop"]) == (0, 0)
    assert run.result()["lost_hosts"] == []
    assert outcome(run.run_dir) == expected


@pytest.mark.thorough
def test_sync_mode_goes_on_here_when_all_other_machines_are_lost_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second loss happens during the recovery from the first."""
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.005", "0.03"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (folder / "hosts.toml").write_text(HOSTS)
    facts = {"micro_batches": 4, "workers": 3, "servers": 3, "rows": SYNC_SAMPLES, "every_s": 0.5}
    run = Supervised(folder, template=SYNC, build=f"{folder}/slow.py:build", **facts)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    for agent in [psutil.Process(servers_of(run)[name]).ppid() for name in ("server-1", "server-2")]:
        os.kill(agent, signal.SIGKILL)
    code, errors = run.finish()
    assert code == 0, errors
    assert {event.name for event in run.events(HostLost)} == {"second", "third"}
    assert run.result()["rolled_back"] and run.result()["lost_hosts"] == []
    assert read_hosts(run.run_dir / "hosts.json").hosts == ()


@pytest.mark.thorough
def test_a_new_size_after_lost_machines_uses_the_remaining_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(folder, monkeypatch, epochs=10_000, every_s=1)
    run.wait_trained(1)
    for name in ("server-2", "server-1"):  # in reverse order
        lost = len(run.events(HostLost))
        lose_machine_of(run, name)
        run.wait_until(lambda seen=lost: len(run.events(HostLost)) > seen)  # type: ignore[misc]
        scale(run, workers=2, servers=2)
    assert set(servers_of(run)) and len(pids_of(run, "worker")) == 2
    assert {psutil.Process(pid).ppid() for pid in servers_of(run).values()} == {run.process.pid}
    stop(run)


def join(run: Supervised, text: str, **counts: int) -> Reply:
    """The last reply to a join command."""
    hosts = HostsFile.model_validate(tomllib.loads(text))
    with commands_of(run) as client:
        client.send(JoinMsg(hosts.model_dump_json(), **counts))
        while isinstance(reply := reply_to(client), AcceptedMsg):
            pass
        return reply


THIRD = """
[[hosts]]
transport = "local"
name = "third"
"""


def test_a_machine_joins_while_the_run_trains_and_takes_its_share(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.system.test_machines.HOSTS", "hosts = []")
    run = start(folder, monkeypatch, epochs=10_000)
    run.wait_trained(1)
    assert (sorted(servers_of(run)), len(pids_of(run, "worker"))) == (["server-0"], 2)
    assert {event.access for event in run.events(PlanChanged)} == {"mixed"}
    joined = join(run, THIRD, workers=3)
    assert isinstance(joined, ReachedMsg), joined
    assert joined.data["buckets_moved"] == pytest.approx(TABLES * BUCKETS / 2, abs=1)
    servers, workers = servers_of(run), pids_of(run, "worker")
    assert (sorted(servers), len(workers)) == (["server-0", "server-1"], 3)
    agent = psutil.Process(servers["server-1"]).ppid()
    assert agent in {psutil.Process(pid).ppid() for pid in workers.values()}
    assert isinstance(join(run, THIRD), RefusedMsg), "the machine has joined already"
    kept = read_hosts(run.run_dir / "hosts.json")
    assert [host.shown for host in kept.hosts] == ["third"]
    os.kill(agent, signal.SIGKILL)
    run.wait_until(lambda: run.events(RowsRolledBack))
    stop(run)
    assert [lost["name"] for lost in run.result()["lost_hosts"]] == ["third"]
    assert read_hosts(run.run_dir / "hosts.json").hosts == ()


def test_a_machine_that_cannot_join_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.test_machines.HOSTS", "hosts = []")
    run = start(folder, monkeypatch, epochs=10_000)
    run.wait_trained(1)
    refused = join(run, THIRD + THIRD.replace("third", "fourth") + 'python = "/no/such/python"\n')
    assert isinstance(refused, RefusedMsg)
    assert "cannot start an agent: " in refused.message and "/no/such/python" in refused.message
    refused = join(run, THIRD + 'python = "/bin/false"\n' + THIRD.replace("third", "fourth"))
    assert isinstance(refused, RefusedMsg)
    assert "no machine joins: third: the other end has closed the connection" in refused.message
    stop(run)
    assert run.events(HostLost) == [] and run.events(HostJoined) == []


def test_a_run_started_without_hosts_tells_how_machines_could_join(folder: Path) -> None:
    run = Supervised(folder, rows=400_000)
    run.wait_trained(1)
    refused = join(run, THIRD)
    assert isinstance(refused, RefusedMsg) and "--hosts" in refused.hint
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish()[0] == 75


@pytest.mark.thorough
def test_when_the_first_machine_is_gone_the_run_goes_on_from_the_second(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = folder / "kept"
    run = start(folder, monkeypatch, every_s=f'0.5\nmirror = "third:{kept}"')
    run.wait_trained(1)
    run.wait_until(lambda: len(run.events(CheckpointMirrored)) >= 2)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    shutil.rmtree(run.run_dir)
    (kept,) = kept.iterdir()  # the directory of this run in the shared directory
    found = latest(kept / "checkpoints")
    assert found is not None and 0 < found.manifest.samples_trained < SAMPLES
    assert (kept / "source" / "slow.py").exists()
    resume = [sys.executable, "-m", "elastichost", "resume", str(kept), "--dashboard", "no", "--json"]
    done = subprocess.run(resume, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}


@pytest.mark.thorough
def test_a_run_that_python_resumes_goes_on_on_its_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it trained all on this machine."""
    run = start(folder, monkeypatch)
    run.wait_trained(1)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.finish()[0] == 75
    assert eh.resume(run.run_dir, progress=False).status == "done"
    assert_trained_once(run)
    before, after = run.events(ArenaOpened)
    assert [path.endswith("-replica") for path in before.directories] == [False, True, True]
    assert [path.endswith("-replica") for path in after.directories] == [False, True, True]


def hides(path: Path, folder: Path) -> Path:
    """A Python interpreter for a machine on which this directory is empty."""
    empty, wrapper = folder / "empty", folder / "python"
    empty.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\nexec unshare -m sh -c \'mount --bind {empty} {path} && exec {sys.executable} "$@"\' sh "$@"\n'
    )
    wrapper.chmod(0o700)
    return wrapper


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide files from a process")
def test_data_that_is_not_on_every_machine_is_known_before_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder / "data"
    data.mkdir()
    (data / "train.csv").write_text("label,a\n" + "0,1\n1,2\n" * 500)
    hosts = HOSTS + f'python = "{hides(data, folder)}"\n'
    monkeypatch.setattr("tests.system.test_machines.HOSTS", hosts)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (folder / "hosts.toml").write_text(hosts)
    synthetic = 'format = "synthetic"\nsynthetic = ' + JOB.split("synthetic = ")[1].split("\n")[0]
    template = JOB.replace(
        synthetic, f'format = "csv"\ntrain = ["{data}/train.csv"]\nlabel = "label"\ncategorical = ["a"]'
    )
    refused = Supervised(folder, template=template)
    code, errors = refused.finish()
    assert code == 3
    assert f"third: {data}/train.csv does not exist there, or cannot be read" in errors
    assert "second:" not in errors
    assert not refused.run_dir.exists()


def test_problems_of_any_machine_are_reported_before_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.test_machines.HOSTS", HOSTS + 'python = "/bin/false"\n')
    refused = start(folder, monkeypatch)
    code, errors = refused.finish()
    assert code == 3
    assert "not all hosts can be used" in errors and "third: the other end has closed the connection" in errors
    assert not refused.run_dir.exists()
