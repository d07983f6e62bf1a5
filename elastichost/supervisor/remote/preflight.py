"""Checks whether machines can train a job together, and finds every problem of every machine in one pass.

Each machine is checked by its agent, which is started as in a run (over ssh or on Ray). No other process is started
there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from elastichost.config.hosts import HostSection, HostsFile
from elastichost.config.job import JobSpec
from elastichost.errors import PreflightError
from elastichost.host.cpu_features import CpuFeatures, cpu_differences, present_cpu, refuses_bfloat16
from elastichost.human_readable import bytes_words
from elastichost.runs.cpu_check import GO_ON_KNOWINGLY, needs_same_cpu
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
    "own_of",
    "repair_of",
    "supervisor_address",
]

ANSWER_TIMEOUT_S = 30.0
SKEW_S = 2.0  # a larger difference of clocks makes journals and logs hard to read together; nothing else depends on it
LEAST_ARENA_BYTES = 1 << 30
Verdict: TypeAlias = Literal["ok", "warning", "failed"]
# Versions that must be equal: otherwise results have other bits, or messages cannot be decoded.
SAME = ("elastichost", "python", "torch", "torchrec", "numpy", "numba", "msgspec")

# (pattern of an error of ssh, a shell, Python or Ray, what to do about it)
_REPAIRS_OF_SSH = (
    (
        r"Host key verification failed|host key is known",
        "run `ssh {address}` once by hand, compare its key and accept it",
    ),
    (r"Permission denied", "run `ssh-copy-id {address}`: elastichost logs in with a key and types no password"),
    (r"Could not resolve|Name or service not known", "check the name: `ssh {address}` must work"),
    (
        r"Connection (refused|timed out)|No route to host|Network is unreachable",
        "check that sshd runs on the host and that its port can be reached",
    ),
    (
        r"No module named 'elastichost'",
        "install elastichost on the host, and set python for this host to the interpreter that has it",
    ),
    (r"not found|No such file", 'set python = "/path/of/the/interpreter" for this host'),
)
_REPAIRS_OF_RAY = (
    (r"CPUs are free", "wait, or end the job that uses them: `ray status` shows their use"),
    (r"no part of the Ray cluster|No module named 'ray'|no Ray cluster", "make sure that `ray status` shows the node"),
    (r"No module named 'elastichost'", "install elastichost on the node, for {python}"),
    (r"not found|No such file", "install elastichost at the same path on all nodes: {python}"),
)


class Own(msgspec.Struct, frozen=True):
    """The versions and the CPU of this machine, with which hosts are compared. needs_same_cpu: a host with another CPU
    cannot be used, because the job is in sync mode (`runs.cpu_check.needs_same_cpu`). needs_bfloat16: a host without
    units for bfloat16 cannot be used."""

    versions: dict[str, str]
    cpu: CpuFeatures
    needs_same_cpu: bool = False
    needs_bfloat16: bool = False


def own_of(job: JobSpec) -> Own:
    """This machine, and what the job needs of others."""
    return Own(package_versions(), present_cpu(), needs_same_cpu(job), job.train.precision == "bfloat16")


class Finding(msgspec.Struct, frozen=True):
    """The result of one check of a host. repair: what to do unless the verdict is ok."""

    host: str
    name: str
    verdict: Verdict
    found: str
    repair: str = ""


def check_hosts(hosts: HostsFile) -> Iterator[Finding]:
    """Starts an agent on every host, and yields the findings host by host. Ends the agents afterwards."""
    launchers = [RemoteLauncher(number, host, ANSWER_TIMEOUT_S) for number, host in enumerate(hosts.hosts, start=1)]
    try:
        for launcher in launchers:
            yield from _check(launcher, hosts, launchers)
    finally:
        for launcher in launchers:
            launcher.close()


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
    """Checks the connections that PS and workers will make: from this machine to the host, and back."""
    host, interface = launcher.host, interface_of(launcher.host, welcome)
    try:
        problem = launcher.reached_at(interface, ANSWER_TIMEOUT_S)
        words = (
            f"this machine does not reach {interface}: {problem}" if problem else f"this machine reaches {interface}"
        )
        repair = "open all ports between the hosts, or set interface to an address of the host that can be reached"
        yield Finding(host.shown, "ports", "failed" if problem else "ok", words, repair if problem else "")
        try:
            door = open_door(own_address)
        except OSError as error:
            yield Finding(
                host.shown,
                "way back",
                "failed",
                f"this machine cannot listen at {own_address}: {error}",
                "set supervisor.address to an address of this machine",
            )
            return
        with door:
            problem = launcher.reaches(own_address, door.getsockname()[1], ANSWER_TIMEOUT_S)
        words = f"the host does not reach {own_address}: {problem}" if problem else f"the host reaches {own_address}"
        repair = "open all ports between the hosts, or set supervisor.address to one that the host reaches"
        yield Finding(host.shown, "way back", "failed" if problem else "ok", words, repair if problem else "")
        there = launcher.speed_to(interface, ANSWER_TIMEOUT_S)
        back = launcher.speed_from(own_address, ANSWER_TIMEOUT_S)
        yield Finding(host.shown, "link", "ok", f"{8e-6 * there:,.0f} Mbit/s there, {8e-6 * back:,.0f} Mbit/s back")
    except PreflightError as error:
        yield Finding(host.shown, "ports", "failed", error.message)


def interface_of(host: HostSection, welcome: WelcomeMsg) -> str:
    """The address at which the PS of a host listen."""
    return host.interface or welcome.address or "127.0.0.1"


def supervisor_address(hosts: HostsFile, launchers: Sequence[RemoteLauncher]) -> str:
    """The address at which the other machines reach this one: that of the hosts file, else the one ssh comes from."""
    callers = [launcher.welcome.caller for launcher in launchers if launcher.welcome is not None]
    return hosts.supervisor.address or next((caller for caller in callers if caller), "127.0.0.1")


def findings_of(host: HostSection, welcome: WelcomeMsg, here: Own, now_s: float) -> Iterator[Finding]:
    """Compares a host with this machine. now_s: this machine's clock when the welcome came, in seconds since 1970.
    Pure."""
    own = here.versions
    name = host.shown
    yield Finding(name, "reachable", "ok", f"the agent on {welcome.name} answers")
    others = [
        f"{package} {welcome.versions.get(package, 'none')} (here {own.get(package, 'none')})"
        for package in SAME
        if welcome.versions.get(package) != own.get(package)
    ]
    same = f"elastichost {own.get('elastichost')}, torch {own.get('torch')}, the same as here"
    repair = "install the same versions on the host: `pip freeze` here, `pip install -r` there"
    yield Finding(name, "versions", "failed" if others else "ok", ", ".join(others) or same, repair if others else "")
    differences = cpu_differences(here.cpu, welcome.cpu)
    verdict: Verdict = ("failed" if here.needs_same_cpu else "warning") if differences else "ok"
    found = "; ".join(differences) or f"{welcome.cpu.name}, the same as here"
    repair = (
        f"sync mode gives the same bits only on CPUs with the same features; leave this host out. {GO_ON_KNOWINGLY}"
    )
    yield Finding(name, "CPU", verdict, found, repair if differences else "")
    if here.needs_bfloat16 and (reason := refuses_bfloat16(welcome.cpu)):
        yield Finding(name, "bfloat16", "failed", reason, 'leave this host out, or set train.precision = "float32"')
    inventory = welcome.inventory
    cores = len(inventory.cores)
    gpus = f", {len(inventory.gpus)} GPUs" if inventory.gpus else ""
    yield Finding(name, "resources", "ok", f"{cores} cores, {bytes_words(inventory.memory_bytes)}{gpus}")
    free = f"{welcome.arena_root}: {bytes_words(welcome.arena_free_bytes)} free"
    if welcome.arena_free_bytes < LEAST_ARENA_BYTES:
        yield Finding(
            name, "shared memory", "warning", free, "run `elastichost clean` on the host, or enlarge the file system"
        )
    else:
        yield Finding(name, "shared memory", "ok", free)
    skew_s = welcome.time_s - now_s
    words = f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} the clock of this machine"
    if abs(skew_s) > SKEW_S:
        yield Finding(name, "clock", "warning", words, "run NTP on both machines, or times in journals do not agree")
    else:
        yield Finding(name, "clock", "ok", words)


def secrecy_of(host: HostSection, use_tls: str) -> Finding:
    """Whether Ray encrypts its calls, which carry the keys of processes. use_tls: the value of RAY_USE_TLS. Pure."""
    if use_tls == "1":
        return Finding(host.shown, "secrecy", "ok", "Ray encrypts its calls (RAY_USE_TLS=1)")
    found = "Ray sends the keys of processes unencrypted: anyone who can read its network can read rows"
    return Finding(
        host.shown, "secrecy", "warning", found, "unless the network is your own, set RAY_USE_TLS=1 on all nodes"
    )


def failures_of(host: HostSection, welcome: WelcomeMsg, own: Own, now_s: float) -> list[str]:
    """The findings of `findings_of` because of which the host cannot be used, as text, each with its repair. Pure."""
    found = findings_of(host, welcome, own, now_s)
    return [f"{one.host}: {one.name}: {one.found}\n    {one.repair}" for one in found if one.verdict == "failed"]


def repair_of(reason: str, host: HostSection) -> str:
    """What to do about an error of ssh, Ray, a shell or Python."""
    for pattern, repair in _REPAIRS_OF_RAY if host.transport == "ray" else _REPAIRS_OF_SSH:
        if re.search(pattern, reason):
            return repair.format(address=host.address, python=host.python or sys.executable)
    if host.transport == "ray":
        return "check the node with `ray status`, and the actor of the agent with `ray logs`"
    return f"make sure that `ssh {host.address}` works without a prompt" if host.address else ""
