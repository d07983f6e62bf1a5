"""Whole runs over ssh on hosts that are network namespaces: sockets, keys and broken links are real. Needs root."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastichost.runs.events import CommandRefused, HostLost, MessageRefused
from tests.hosts.keys import ROOT
from tests.system.test_machines import SAMPLES, assert_done
from tests.system.test_run import JOB, Supervised, folder
from tests.system.test_scale import SLOW_MODEL

pytest.importorskip("asyncssh", reason="asyncssh, of the test extra, is the sshd of these tests")
from tests.hosts.bed import SSH_PORT, Bed, why_not

if problem := why_not():
    pytest.skip(problem, allow_module_level=True)
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(400)]

__all__ = ["folder"]

WITHOUT_KEY = """
import sys, zmq
for address in sys.argv[1:]:
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(address)
    for _ in range(100):
        try:
            socket.send(b"x" * 1000, zmq.NOBLOCK)
        except zmq.Again:
            break  # the gate has closed the connection
    assert not socket.poll(300)
"""


@pytest.fixture
def bed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """Two hosts."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with Bed(2, folder) as made:
        yield made


def section(bed: Bed, host: int) -> str:
    """A host's section of a hosts file."""
    return (
        f'[[hosts]]\naddress = "{getpass.getuser()}@{bed.address(host)}"\nname = "host{host}"\n'
        f"options = {bed.keys.options(SSH_PORT)}\n"
    )


class OverSsh(Supervised):
    """`elastichost run JOB --hosts FILE`, called on host 0."""

    def __init__(self, bed: Bed, folder: Path, **settings: Any) -> None:
        self.run_dir = folder / "run"
        (folder / "slow.py").write_text(SLOW_MODEL)
        facts = {"build": f"{folder}/slow.py:build", "rows": SAMPLES, "epochs": 1, "restarts": 3, "every_s": 60}
        job, hosts = folder / "job.toml", folder / "hosts.toml"
        job.write_text(JOB.format(**{**facts, **settings}))
        hosts.write_text("\n".join(section(bed, host) for host in bed.hosts[1:]))
        command = [sys.executable, "-m", "elastichost", "run", str(job), "--hosts", str(hosts)]
        more = ["--run-dir", str(self.run_dir), "--dashboard", "no"]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = bed.run(0, [*command, *more], cwd=ROOT, **pipes)  # type: ignore[assignment]


def test_a_job_trains_on_two_hosts_and_a_link_cut_for_a_short_time_loses_nothing(bed: Bed, folder: Path) -> None:
    run = OverSsh(bed, folder)
    run.wait_trained(1)
    workers = [one for one in run.status()["processes"] if one["role"] == "worker"]
    assert len({psutil.Process(one["pid"]).ppid() for one in workers}) == 2, "one worker on each host"
    sent, received = bed.sent_bytes(1)
    assert sent > 100_000 and received > 100_000, "rows went over the link"
    bed.cut(1)
    run.wait_until(lambda: trains_nothing(run))
    bed.heal(1)
    assert_done(run)
    assert run.events(HostLost) == [] and run.lost() == []


def trains_nothing(run: Supervised) -> bool:
    """Whether no sample is trained for a second: every worker needs rows of a PS that it cannot reach."""
    first = run.status()
    run.wait_until(lambda: run.status()["elapsed_s"] >= first["elapsed_s"] + 1)
    return bool(run.status()["samples_trained"] == first["samples_trained"])


def test_a_link_that_is_blocked_in_one_direction_for_a_while_loses_nothing(bed: Bed, folder: Path) -> None:
    run = OverSsh(bed, folder)
    run.wait_trained(1)
    bed.mute(1, 0)
    run.wait_until(lambda: trains_nothing(run))
    bed.unmute(1, 0)
    assert_done(run)
    assert run.events(HostLost) == [] and run.lost() == []


def test_every_port_refuses_connections_without_a_key(bed: Bed, folder: Path) -> None:
    run = OverSsh(bed, folder)
    run.wait_trained(1)
    listening = [place for host in bed.hosts for place in bed.listens(host)]
    assert len(listening) == 3, "the supervisor, and a PS on each host"
    assert {place.rpartition(":")[0] for place in listening} == {bed.address(0), bed.address(1)}
    addresses = [f"tcp://{place}" for place in listening]
    assert bed.run(1, [sys.executable, "-c", WITHOUT_KEY, *addresses]).wait(60) == 0
    assert_done(run)
    assert run.events(MessageRefused, CommandRefused) == []


def test_doctor_measures_the_link(bed: Bed, folder: Path) -> None:
    (folder / "hosts.toml").write_text(section(bed, 1))
    command = [sys.executable, "-m", "elastichost", "doctor", "--json", "--hosts", str(folder / "hosts.toml")]

    def link() -> tuple[int, int]:
        """The speed to the host and back, in Mbit/s."""
        doctor = bed.run(0, command, cwd=ROOT, stdout=subprocess.PIPE)
        output, _ = doctor.communicate(timeout=100)
        assert doctor.returncode == 0, output
        (found,) = (one["found"] for one in json.loads(output)["hosts"] if one["name"] == "link")
        there, _, _, back, *_ = found.replace(",", "").split()
        return int(there), int(back)

    assert min(link()) > 400
    bed.limit(1, 50)
    assert all(25 <= mbit_per_s <= 60 for mbit_per_s in link())
