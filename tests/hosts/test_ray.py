"""Agents and whole runs on a Ray cluster of three nodes, all on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastichost.config.hosts import HostsFile, read_hosts
from elastichost.errors import PreflightError
from elastichost.runs.events import CheckpointWritten, HostLost, RowsRolledBack
from elastichost.supervisor.launch.events import AgentLost, Exited, Started
from elastichost.supervisor.remote.agent_launcher import agent_command
from elastichost.supervisor.remote.preflight import check_hosts
from elastichost.supervisor.remote.ray.cluster import hosts_on_ray
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from elastichost.supervisor.remote.transfers import TransferEnd
from tests.hosts.keys import ROOT
from tests.system.test_agent import LIMIT_S, collect, directories, is_gone, spawn, wait_until
from tests.system.test_machines import pids_of, servers_of
from tests.system.test_run import JOB, Supervised, folder
from tests.system.test_scale import SLOW_MODEL, assert_trained_once, scale, stop

pytest.importorskip("ray", reason="ray, of the test extra, is not installed")
from benchmarks.ray_recovery.ray_bed import RayBed

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(300)]

__all__ = ["folder"]

SAMPLES, FEWER = 200_000, 60_000
IMPATIENT = """
import sys
from elastichost.supervisor.remote.ray import relay as ray_relay
from elastichost.supervisor.remote.transfers import TransferEnd
ray_relay.PLACED_WITHIN_S = 1.0
sys.exit(ray_relay.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayBed]:
    """A Ray cluster for all tests of this file."""
    with RayBed([1, 2, 2]) as bed:
        yield bed


@pytest.fixture
def bed(cluster: RayBed, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayBed]:
    """The cluster, with its environment in this process; after the test its nodes' directories must be empty."""
    for name in ("PYTHONPATH", "RAY_TMPDIR", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, cluster.environment[name])
    yield cluster
    cluster.assert_nothing_is_left()


@pytest.fixture
def hosts(bed: RayBed) -> HostsFile:
    """The hosts of the cluster."""
    return hosts_on_ray(bed.address)


@pytest.fixture
def launcher(hosts: HostsFile) -> Iterator[RemoteLauncher]:
    """A launcher on a node; its agent has created its directories."""
    made = RemoteLauncher(1, hosts.hosts[0], 30.0)
    try:
        made.wait(lambda: made.welcome is not None, LIMIT_S, "to answer")
        made.open(f"raytest{os.getpid()}", (), ("json",), ())
        made.wait(lambda: made.opened is not None and made.prepared is not None, LIMIT_S, "to open")
        yield made
    finally:
        made.close()


class OnRay(Supervised):
    """A run of `elastichost run JOB --on ray`, or of `elastichost resume RUN_DIR`."""

    def __init__(
        self, bed: RayBed, folder: Path, *, resume: bool = False, rows: int = SAMPLES, **settings: Any
    ) -> None:
        self.run_dir = folder / "run"
        (folder / "slow.py").write_text(SLOW_MODEL)
        job = folder / "job.toml"
        facts = {"build": f"{folder}/slow.py:build", "rows": rows, "epochs": 1, "restarts": 3, "every_s": 60}
        job.write_text(JOB.format(**{**facts, **settings}))
        new_run = ["run", str(job), "--on", "ray", "--ray-address", bed.address, "--run-dir", str(self.run_dir)]
        words = ["resume", str(self.run_dir)] if resume else new_run
        self.process = subprocess.Popen(  # type: ignore[assignment]
            [sys.executable, "-m", "elastichost", *words, "--dashboard", "no"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def assert_done(self) -> None:
        """Waits for the end; asserts that every sample was trained."""
        code, errors = self.finish()
        assert code == 0, errors
        assert self.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}


def test_the_other_nodes_are_hosts_and_pass_every_check(bed: RayBed, hosts: HostsFile) -> None:
    assert [(host.transport, host.cluster, host.cores) for host in hosts.hosts] == [("ray", bed.address, 2)] * 2
    address = hosts.supervisor.address
    assert address and {host.interface for host in hosts.hosts} == {address}, "all nodes are on this machine"
    findings = list(check_hosts(hosts))
    assert {one.verdict for one in findings} <= {"ok", "warning"}, findings
    assert {one.name for one in findings} >= {"reachable", "versions", "secrecy", "ports", "way back"}
    assert any(str(bed.arenas) in one.found for one in findings), "the answer must come from the agent on the node"


def test_a_process_runs_on_a_node_and_no_directory_remains(
    bed: RayBed, launcher: RemoteLauncher, tmp_path: Path
) -> None:
    there = directories(launcher)
    assert len(bed.actors()) == 1
    assert there[0].parent == bed.arenas
    spawn(launcher, tmp_path, "tell", code=3)
    started, exited = collect(launcher, Started, Exited)
    assert isinstance(started, Started) and isinstance(exited, Exited) and exited.code == 3
    assert (tmp_path / "log").read_text() == "told\n"
    launcher.close()
    assert not any(path.exists() for path in there)


def test_a_large_file_is_unchanged_after_it_was_sent_and_fetched(launcher: RemoteLauncher, tmp_path: Path) -> None:
    """It has many pieces, and goes in both directions at once."""
    data = os.urandom(20 << 20)
    source, back, answers = tmp_path / "source", tmp_path / "back", list[TransferEnd]()
    source.write_bytes(data)
    for name in ("one", "two"):
        launcher.files.send(name, source, answers.append)
    wait_until(lambda: len(answers) >= 1, launcher)
    launcher.files.fetch("one", back, answers.append)
    wait_until(lambda: len(answers) == 3, launcher)
    assert answers == [TransferEnd()] * 3
    assert back.read_bytes() == data


@pytest.mark.parametrize("killed", ["relay", "agent", "actor"])
def test_a_killed_relay_agent_or_actor_loses_the_host_and_leaves_nothing_behind(
    launcher: RemoteLauncher, tmp_path: Path, killed: str
) -> None:
    there = directories(launcher)
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists, launcher)
    assert launcher.opened is not None
    agent = psutil.Process(launcher.opened.pid)
    os.kill({"relay": launcher.pid, "agent": agent.pid, "actor": agent.ppid()}[killed], signal.SIGKILL)
    lost, *_ = (event for event in collect(launcher, AgentLost, Exited) if isinstance(event, AgentLost))
    assert lost.name == launcher.host.shown
    for pid in json.loads(path.read_text()):
        wait_until(lambda pid=pid: is_gone(pid))
    wait_until(lambda: not any(path.exists() for path in there))


@pytest.mark.parametrize(
    ("change", "reason", "repair"),
    [
        ({"node": "ab" * 28}, "no part of the Ray cluster any more", "ray status"),
        ({"cores": 64}, "or has fewer CPUs", "ray status"),
        ({"python": "/no/python"}, "/no/python: No such file", "at the same path on all nodes"),
    ],
)
def test_a_problem_of_a_node_comes_with_a_hint(
    hosts: HostsFile, change: dict[str, object], reason: str, repair: str
) -> None:
    host = hosts.hosts[0].model_copy(update=change)
    findings = list(check_hosts(HostsFile(hosts=(host,))))
    assert [(one.host, one.name, one.verdict) for one in findings] == [(host.shown, "reachable", "failed")]
    assert reason in findings[0].found and repair in findings[0].repair, findings[0]


def test_the_error_says_that_cpus_of_a_node_are_in_use(launcher: RemoteLauncher) -> None:
    _, _, module, *arguments = agent_command(launcher.host, None)
    assert module.endswith("ray.relay")
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 127
    assert "not all of its 2 CPUs are free" in done.stderr


def test_the_error_names_a_cluster_that_does_not_answer(
    bed: RayBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastichost.supervisor.remote.ray.cluster.ANSWERS_WITHIN_S", 2.0)
    with pytest.raises(PreflightError, match=r"no Ray cluster has answered at '127\.0\.0\.1:9'.*\n.*ray start"):
        hosts_on_ray("127.0.0.1:9")


def test_a_job_trains_on_three_nodes_through_kills_and_changes_of_size(bed: RayBed, folder: Path) -> None:
    run = OnRay(bed, folder)
    run.wait_trained(1)
    assert len(bed.actors()) == 2
    assert sorted(servers_of(run)) == ["server-0", "server-1", "server-2"]
    elsewhere = {
        name: pid
        for role in ("server", "worker")
        for name, pid in pids_of(run, role).items()
        if psutil.Process(pid).ppid() != run.process.pid
    }
    assert sorted(elsewhere) == ["server-1", "server-2", "worker-1"]
    actor = psutil.Process(elsewhere["server-1"]).parents()[1]
    assert "Carrier" in " ".join(actor.cmdline())
    for name in ("server-1", "worker-1"):
        os.kill(elsewhere[name], signal.SIGKILL)
        run.wait_ready(f"{name}.2")
    scale(run, workers=3)
    scale(run, servers=2)
    run.assert_done()
    assert_trained_once(run)
    assert len(run.lost()) == 2 and run.events(HostLost) == []


def test_a_run_goes_on_when_a_node_is_lost(bed: RayBed, folder: Path) -> None:
    run = OnRay(bed, folder, rows=FEWER, every_s=1)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    bed.kill(bed.nodes[-1])
    run.wait_until(lambda: run.events(RowsRolledBack))
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == FEWER
    assert_trained_once(run)
    (lost,) = run.result()["lost_hosts"]
    assert lost["checkpoint"]
    assert any("Ray does not run on the node" in event.reason for event in run.events(HostLost))


def test_a_new_node_joins_and_resume_uses_the_nodes_of_that_moment(bed: RayBed, folder: Path) -> None:
    while len(bed.nodes) > 2:
        bed.kill(bed.nodes[-1])
    run = OnRay(bed, folder, epochs=10_000)
    run.wait_trained(1)
    assert sorted(servers_of(run)) == ["server-0", "server-1"]
    bed.add(2)
    words = ["scale", str(run.run_dir), "--on", "ray", "--ray-address", bed.address]
    joined = subprocess.run([sys.executable, "-m", "elastichost", *words], cwd=ROOT, capture_output=True, text=True)
    assert joined.returncode == 0, joined.stderr
    assert sorted(servers_of(run)) == ["server-0", "server-1", "server-2"]
    assert len(bed.actors()) == 2
    stop(run)
    bed.kill(bed.nodes[1])
    again = OnRay(bed, folder, resume=True, epochs=10_000)
    trained = run.result()["samples"]["trained"]
    again.wait_trained(trained + 1)
    assert [host.node for host in read_hosts(again.run_dir / "hosts.json").hosts] == [bed.nodes[1]]
    stop(again)
