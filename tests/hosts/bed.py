"""Hosts as network namespaces of this machine, joined by a bridge: needs root. Links can be cut, slowed, or blocked in
one direction.

bed = Bed(3)      hosts 0 (where the run is called), 1 and 2, at 10.77.<n>.1 and so on
bed.run(0, ...)   a process of host 0
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.hosts.keys import SshKeys

__all__ = ["Bed", "why_not"]

SSH_PORT = 22
DEVICE = "eth0"
PROGRAMS = ("ip", "ss", "ssh", "ssh-keygen")


def why_not() -> str:
    """Why namespaces cannot be created here; "" if they can."""
    if os.geteuid() != 0:
        return "namespaces of hosts need root"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"namespaces of hosts need {', '.join(missing)}"
    name = f"eh{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be created: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=False)
    return ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Bed:
    """`hosts` hosts, each with an sshd; a process on any host can log in to all of them."""

    def __init__(self, hosts: int, folder: Path) -> None:
        self._name = f"eh{os.getpid()}"
        self._lan = f"{self._name}-lan"
        self.hosts = range(hosts)
        self.keys = SshKeys.make(folder / "keys")
        self._daemons: list[subprocess.Popen[str]] = []
        _ip("netns", "add", self._lan)
        try:
            _ip("-n", self._lan, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._lan, "link", "set", "bridge", "up")
            for host in self.hosts:
                self._add(host)
            for host in self.hosts:
                daemon, _ = self.keys.start_sshd(self.address(host), SSH_PORT, self.prefix(host))
                self._daemons.append(daemon)
                self.keys.know(self.address(host), SSH_PORT)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Bed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def namespace(self, host: int) -> str:
        return f"{self._name}-{host}"

    def address(self, host: int) -> str:
        return f"10.77.{os.getpid() % 250}.{host + 1}"

    def prefix(self, host: int) -> list[str]:
        """The words in front of a command that make it run on the host."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def _add(self, host: int) -> None:
        space, port = self.namespace(host), f"port{host}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "add", DEVICE, "type", "veth", "peer", "name", port, "netns", self._lan)
        _ip("-n", self._lan, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{self.address(host)}/24", "dev", DEVICE)
        _ip("-n", space, "link", "set", DEVICE, "up")

    # --- faults ---------------------------------------------------------------------------------------------

    def cut(self, host: int) -> None:
        """Drops all packets in both directions; no connection is reset."""
        _ip("-n", self._lan, "link", "set", f"port{host}", "down")

    def heal(self, host: int) -> None:
        _ip("-n", self._lan, "link", "set", f"port{host}", "up")

    def mute(self, host: int, other: int) -> None:
        """Drops all packets from `host` to `other`; packets from `other` still arrive."""
        _ip("-n", self.namespace(host), "route", "add", "blackhole", f"{self.address(other)}/32")

    def unmute(self, host: int, other: int) -> None:
        _ip("-n", self.namespace(host), "route", "delete", "blackhole", f"{self.address(other)}/32")

    def limit(self, host: int, mbit_per_s: float) -> None:
        """Limits the speed in each direction."""
        rate = ("root", "tbf", "rate", f"{mbit_per_s}mbit", "burst", "256kb", "latency", "100ms")
        for space, device in ((self.namespace(host), DEVICE), (self._lan, f"port{host}")):
            subprocess.run(["tc", "-n", space, "qdisc", "replace", "dev", device, *rate], check=True)

    def sent_bytes(self, host: int) -> tuple[int, int]:
        """(sent, received): bytes through the host's interface since it was created."""
        folder = Path("/sys/class/net") / DEVICE / "statistics"
        command = [*self.prefix(host), "cat", str(folder / "tx_bytes"), str(folder / "rx_bytes")]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return int(output[0]), int(output[1])

    def listens(self, host: int) -> list[str]:
        """`address:port` of each listening TCP socket on the host, except the sshd's."""
        command = [*self.prefix(host), "ss", "-H", "-l", "-t", "-n"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        places = [line.split()[3] for line in output]
        return [place for place in places if not place.endswith(f":{SSH_PORT}")]

    def pin_sshd(self, host: int, cores: Sequence[int]) -> None:
        """Processes of later logins on the host run on these cores."""
        os.sched_setaffinity(self._daemons[host].pid, cores)

    # --- processes ------------------------------------------------------------------------------------------

    def run(self, host: int, command: Sequence[str], **settings: object) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.prefix(host), *command], text=True, **settings)  # type: ignore[call-overload, no-any-return]

    def close(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
            assert daemon.stdout is not None
            daemon.stdout.close()
        self._daemons.clear()
        for space in (self._lan, *map(self.namespace, self.hosts)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", space)
