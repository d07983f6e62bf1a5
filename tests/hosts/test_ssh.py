"""Agents over a real ssh client and an sshd on the loopback interface; root is not needed."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elastichost.arena.host import arena_root
from elastichost.config.hosts import HostSection, HostsFile
from elastichost.errors import PreflightError
from elastichost.supervisor.launch.events import AgentLost, Exited, Started
from elastichost.supervisor.remote.preflight import check_hosts
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from tests.hosts.keys import ROOT, SshKeys
from tests.system.test_agent import LIMIT_S, collect, directories, is_gone, spawn, wait_until

pytest.importorskip("asyncssh", reason="asyncssh, of the test extra, is the sshd of these tests")
if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
    pytest.skip("there is no ssh client", allow_module_level=True)
pytestmark = [pytest.mark.system, pytest.mark.thorough]

ADDRESS = "127.0.0.1"


@dataclass(slots=True)
class Sshd:
    """An sshd that runs."""

    keys: SshKeys
    process: subprocess.Popen[str]
    port: int

    def host(self, **settings: object) -> HostSection:
        """The section of a hosts file for this machine, over ssh."""
        facts = {"address": f"{getpass.getuser()}@{ADDRESS}", "name": "there", "options": self.keys.options(self.port)}
        return HostSection.model_validate({**facts, **settings})


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """An sshd on the loopback interface, which the user knows."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    keys = SshKeys.make(tmp_path / "keys")
    process, port = keys.start_sshd(ADDRESS)
    keys.know(ADDRESS, port)
    yield Sshd(keys, process, port)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def launcher(sshd: Sshd) -> Iterator[RemoteLauncher]:
    """A launcher of an agent over ssh."""
    made = RemoteLauncher(1, sshd.host(), 30.0)
    yield made
    made.close()


def opened(launcher: RemoteLauncher) -> RemoteLauncher:
    """The launcher, when its agent has created its directories."""
    launcher.wait(lambda: launcher.welcome is not None, LIMIT_S, "to answer")
    launcher.open(f"sshtest{os.getpid()}", (), ("json",), ())
    launcher.wait(lambda: launcher.opened is not None and launcher.prepared is not None, LIMIT_S, "to open")
    return launcher


def test_a_process_runs_over_ssh_and_no_directory_remains(launcher: RemoteLauncher, tmp_path: Path) -> None:
    there = directories(opened(launcher))
    assert launcher.welcome is not None
    assert (launcher.welcome.address, launcher.welcome.caller) == (ADDRESS, ADDRESS)
    spawn(launcher, tmp_path, "tell", code=3)
    started, exited = collect(launcher, Started, Exited)
    assert isinstance(started, Started) and isinstance(exited, Exited) and exited.code == 3
    assert (tmp_path / "log").read_text() == "told\n"
    launcher.close()
    assert not any(path.exists() for path in there)


def test_when_ssh_is_killed_the_host_is_lost_and_its_agent_cleans_up(launcher: RemoteLauncher, tmp_path: Path) -> None:
    there = directories(opened(launcher))
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists, launcher)
    os.kill(launcher.pid, signal.SIGKILL)
    collect(launcher, AgentLost, Exited)
    for pid in map(int, path.read_text().strip("[]").split(",")):
        wait_until(lambda pid=pid: is_gone(pid))
    wait_until(lambda: not any(path.exists() for path in there))


@pytest.mark.parametrize(
    ("problem", "name", "repair"),
    [
        ("an unknown host key", "reachable", "compare its key"),
        ("a key that is not allowed", "reachable", "ssh-copy-id"),
        ("no sshd", "reachable", "check that sshd runs"),
        ("no such interpreter", "reachable", "path/of/the/interpreter"),
    ],
)
def test_a_problem_of_a_host_comes_with_a_hint(
    sshd: Sshd, tmp_path: Path, problem: str, name: str, repair: str
) -> None:
    host = sshd.host()
    if problem == "an unknown host key":
        (tmp_path / "keys" / "known_hosts").write_text("")
    elif problem == "a key that is not allowed":
        other = SshKeys.make(tmp_path / "other")
        other.know(ADDRESS, sshd.port)
        (tmp_path / "other" / "known_hosts").write_text((tmp_path / "keys" / "known_hosts").read_text())
        host = sshd.host(options=other.options(sshd.port))
    elif problem == "no sshd":
        sshd.process.kill()
        sshd.process.wait()
    else:
        host = sshd.host(python="/no/python")
    findings = list(check_hosts(HostsFile(hosts=(host,))))
    assert [(one.host, one.name, one.verdict) for one in findings] == [("there", name, "failed")]
    assert repair in findings[0].repair, findings[0]


def test_a_good_host_passes_every_check(sshd: Sshd) -> None:
    findings = list(check_hosts(HostsFile(hosts=(sshd.host(),))))
    names = ["reachable", "versions", "CPU", "resources", "shared memory", "clock", "ports", "way back", "link"]
    assert [one.name for one in findings] == names
    assert {one.verdict for one in findings} <= {"ok", "warning"}, findings
    assert str(arena_root()) in findings[4].found


def test_an_address_that_looks_like_an_option_of_ssh_is_refused() -> None:
    with pytest.raises(ValueError, match="is not the address of a host"):
        HostSection(address="-oProxyCommand=true")


def test_the_error_names_a_host_with_an_agent_that_never_answers(sshd: Sshd) -> None:
    made = RemoteLauncher(1, sshd.host(python="/bin/cat"), 30.0)
    with pytest.raises(PreflightError, match="host there"):
        made.wait(lambda: made.welcome is not None, 5.0, "to answer")
    made.close()
