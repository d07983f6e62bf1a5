"""Can these machines train a job together? Everything that is wrong with any of them, at once.

Each is asked by its agent, reached as a run would do it (ssh, Ray); nothing is started there but that.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from elastichost.config.hosts import HostSection, HostsFile
from elastichost.errors import PreflightError
from elastichost.host.cpu_features import CpuFeatures, cpu_differences, present_cpu
from elastichost.runs.cpu_check import GO_ON_KNOWINGLY
from elastichost.runs.directory import package_versions
from elastichost.supervisor.remote.link_probe import open_door
from elastichost.supervisor.remote.messages import WelcomeMsg
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher

__all__ = [
    "Finding",
    "Own",
    "check_hosts",
    "failures_of",
    "findings_of",
    "interface_of",
    "repair_of",
    "supervisor_address",
]

ANSWER_TIMEOUT_S = 30.0
SKEW_S = 2.0  # clocks stamp journals and logs only; more than this, and they are hard to read together
LEAST_ARENA_BYTES = 1 << 30
Verdict: TypeAlias = Literal["ok", "warning", "failed"]
# What has to be the same for bits to be, and for messages to be understood.
SAME = ("elastichost", "python", "torch", "torchrec", "numpy", "numba", "msgspec")

# What ssh, shells, Python and Ray say, and what helps.
_REPAIRS_OF_SSH = (
    (r"Host key verification failed|host key is known", "ssh {address} once, by hand: compare its key, accept it"),
    (r"Permission denied", "ssh-copy-id {address}: keys only, nobody is there to type a password"),
    (r"Could not resolve|Name or service not known", "is the name right? ssh {address} has to work"),
    (
        r"Connection (refused|timed out)|No route to host|Network is unreachable",
        "does sshd run there, and can it be reached?",
    ),
    (r"No module named 'elastichost'", "install elastichost there, and set python to the interpreter that has it"),
    (r"not found|No such file", 'set python = "/path/of/the/interpreter" for this host'),
)
_REPAIRS_OF_RAY = (
    (r"CPUs are free", "wait, or end who has them: `ray status` shows it"),
    (r"no part of the Ray cluster|No module named 'ray'|no Ray cluster", "`ray status` has to show the node"),
    (r"No module named 'elastichost'", "install elastichost there, for {python}"),
    (r"not found|No such file", "install elastichost at the same path on all nodes: {python}"),
)


class Own(msgspec.Struct, frozen=True):
    """What hosts are compared with: versions and CPU of this machine. needs_same_cpu: the job is in sync mode."""

    versions: dict[str, str]
    cpu: CpuFeatures
    needs_same_cpu: bool = False


class Finding(msgspec.Struct, frozen=True):
    """One of a host; `repair` is what to do when it is not ok."""

    host: str
    name: str
    verdict: Verdict
    found: str
    repair: str = ""


def check_hosts(hosts: HostsFile) -> Iterator[Finding]:
    """Findings, host after host."""
    launchers = [RemoteLauncher(number, host, ANSWER_TIMEOUT_S) for number, host in enumerate(hosts.hosts, start=1)]
    try:
        for launcher in launchers:
            yield from _check(launcher, hosts, launchers)
    finally:
        for launcher in launchers:
            launcher.close(grace_s=0.0)


def _check(launcher: RemoteLauncher, hosts: HostsFile, all_of_them: Sequence[RemoteLauncher]) -> Iterator[Finding]:
    host = launcher.host
    try:
        launcher.wait(lambda: launcher.welcome is not None, ANSWER_TIMEOUT_S, "to answer")
    except PreflightError as error:
        reason = error.message.removeprefix(f"host {host.shown}: ")
        yield Finding(host.shown, "reachable", "failed", reason, repair_of(reason, host))
        return
    welcome = launcher.welcome
    assert welcome is not None
    yield from findings_of(host, welcome, Own(package_versions(), present_cpu()), launcher.welcomed_s)
    if host.transport == "ray":
        yield secrecy_of(host, os.environ.get("RAY_USE_TLS", ""))
    yield from _check_ways(launcher, welcome, supervisor_address(hosts, all_of_them))


def _check_ways(launcher: RemoteLauncher, welcome: WelcomeMsg, own_address: str) -> Iterator[Finding]:
    """From here to there, and back, as PS and workers will go."""
    host, interface = launcher.host, interface_of(launcher.host, welcome)
    try:
        problem = launcher.reached_at(interface, ANSWER_TIMEOUT_S)
        words = f"{interface} cannot be reached from here: {problem}" if problem else f"reached at {interface}"
        repair = "let any port through between the hosts, or set interface to an address of it that can be reached"
        yield Finding(host.shown, "ports", "failed" if problem else "ok", words, repair if problem else "")
        try:
            door = open_door(own_address)
        except OSError as error:
            yield Finding(host.shown, "way back", "failed", f"{own_address}: {error}", "set supervisor.address")
            return
        with door:
            problem = launcher.reaches(own_address, door.getsockname()[1], ANSWER_TIMEOUT_S)
        words = f"it does not reach {own_address}: {problem}" if problem else f"it reaches {own_address}"
        repair = "let any port through between the hosts, or set supervisor.address to one that it reaches"
        yield Finding(host.shown, "way back", "failed" if problem else "ok", words, repair if problem else "")
        there = launcher.speed_to(interface, ANSWER_TIMEOUT_S)
        back = launcher.speed_from(own_address, ANSWER_TIMEOUT_S)
        yield Finding(host.shown, "link", "ok", f"{8e-6 * there:,.0f} Mbit/s there, {8e-6 * back:,.0f} Mbit/s back")
    except PreflightError as error:
        yield Finding(host.shown, "ports", "failed", error.message)


def interface_of(host: HostSection, welcome: WelcomeMsg) -> str:
    """Where PS of a host listen."""
    return host.interface or welcome.address or "127.0.0.1"


def supervisor_address(hosts: HostsFile, launchers: Sequence[RemoteLauncher]) -> str:
    """Where the others reach this machine: as the file says, or where ssh comes from."""
    callers = [launcher.welcome.caller for launcher in launchers if launcher.welcome is not None]
    return hosts.supervisor.address or next((caller for caller in callers if caller), "127.0.0.1")


def findings_of(host: HostSection, welcome: WelcomeMsg, here: Own, now_s: float) -> Iterator[Finding]:
    """What a host says of itself, beside what is here. Pure."""
    own = here.versions
    name = host.shown
    yield Finding(name, "reachable", "ok", f"{welcome.name} answers")
    others = [
        f"{package} {welcome.versions.get(package, 'none')} (here {own.get(package, 'none')})"
        for package in SAME
        if welcome.versions.get(package) != own.get(package)
    ]
    same = f"elastichost {own.get('elastichost')}, torch {own.get('torch')}, as here"
    repair = "install the same versions there: pip freeze here, pip install -r there"
    yield Finding(name, "versions", "failed" if others else "ok", ", ".join(others) or same, repair if others else "")
    differences = cpu_differences(here.cpu, welcome.cpu)
    verdict: Verdict = ("failed" if here.needs_same_cpu else "warning") if differences else "ok"
    found = "; ".join(differences) or f"{welcome.cpu.name}, as here"
    repair = f"sync mode has the same bits on like CPUs only; leave this host out. {GO_ON_KNOWINGLY}"
    yield Finding(name, "CPU", verdict, found, repair if differences else "")
    inventory = welcome.inventory
    cores = len(inventory.cores)
    gpus = f", {len(inventory.gpus)} GPUs" if inventory.gpus else ""
    yield Finding(name, "resources", "ok", f"{cores} cores, {inventory.memory_bytes / 1e9:.1f} GB{gpus}")
    free = f"{welcome.arena_root}: {welcome.arena_free_bytes / 1e9:.1f} GB free"
    if welcome.arena_free_bytes < LEAST_ARENA_BYTES:
        yield Finding(name, "shared memory", "warning", free, "elastichost clean there, or enlarge it")
    else:
        yield Finding(name, "shared memory", "ok", free)
    skew_s = welcome.time_s - now_s
    words = f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} this one"
    if abs(skew_s) > SKEW_S:
        yield Finding(name, "clock", "warning", words, "times in journals will not fit together: run NTP on both")
    else:
        yield Finding(name, "clock", "ok", words)


def secrecy_of(host: HostSection, use_tls: str) -> Finding:
    """use_tls: Ray's setting of this name. The keys of processes go through Ray's own calls. Pure."""
    if use_tls == "1":
        return Finding(host.shown, "secrecy", "ok", "Ray encrypts what it carries")
    found = "Ray carries keys of processes unencrypted: who reads its network reads rows"
    return Finding(
        host.shown, "secrecy", "warning", found, "in a network that is not your own: RAY_USE_TLS=1 on all nodes"
    )


def failures_of(host: HostSection, welcome: WelcomeMsg, own: Own, now_s: float) -> list[str]:
    """Of `findings_of` what speaks against the host, each with what helps."""
    found = findings_of(host, welcome, own, now_s)
    return [f"{one.host}: {one.name}: {one.found}\n    {one.repair}" for one in found if one.verdict == "failed"]


def repair_of(reason: str, host: HostSection) -> str:
    """What helps against what ssh, Ray, a shell or Python said."""
    for pattern, repair in _REPAIRS_OF_RAY if host.transport == "ray" else _REPAIRS_OF_SSH:
        if re.search(pattern, reason):
            return repair.format(address=host.address, python=host.python or sys.executable)
    if host.transport == "ray":
        return "`ray status` tells how the node is, its logs (ray logs) what became of the actor"
    return f"`ssh {host.address}` has to work without a question" if host.address else ""
