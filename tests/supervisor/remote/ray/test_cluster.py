"""Nodes of a Ray cluster as hosts: which nodes become hosts, their names, and the errors and their hints."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from elastichost.config.hosts import HostSection, HostsFile, hosts_of_addresses
from elastichost.errors import ConfigError, PreflightError
from elastichost.supervisor.remote.agent_launcher import agent_command
from elastichost.supervisor.remote.preflight import repair_of, secrecy_of
from elastichost.supervisor.remote.ray.cluster import (
    RayCluster,
    RayNode,
    hosts_of,
    hosts_on_ray,
    listed_anew,
    newcomers,
)

HERE = RayNode("00" * 28, "10.0.0.1", "head", 8)


def cluster(*others: RayNode) -> RayCluster:
    """A cluster of this machine's node and the given nodes."""
    return RayCluster("10.0.0.1:6379", HERE.node, (HERE, *others))


def node(number: int, hostname: str, cores: int = 4) -> RayNode:
    """A node whose id and address are made from its number."""
    return RayNode(f"{number:02d}" * 28, f"10.0.0.{number}", hostname, cores)


def test_every_node_is_a_host_except_this_one_and_those_without_a_cpu() -> None:
    found = hosts_of(cluster(node(3, "b"), node(2, "a"), node(4, "idle", 0)))
    assert [(host.shown, host.address, host.interface, host.cores) for host in found.hosts] == [
        ("a", "10.0.0.2", "10.0.0.2", 4),
        ("b", "10.0.0.3", "10.0.0.3", 4),
    ]
    assert {(host.transport, host.cluster) for host in found.hosts} == {("ray", "10.0.0.1:6379")}
    assert found.supervisor.address == "10.0.0.1"


def test_nodes_of_one_machine_have_different_names() -> None:
    found = hosts_of(cluster(node(2, "big"), node(3, "big"), node(4, "")))
    assert [host.shown for host in found.hosts] == ["10.0.0.4", "big-02020202", "big-03030303"]


def test_a_cluster_without_other_usable_nodes_has_no_hosts() -> None:
    assert hosts_of(cluster(node(2, "idle", 0))).hosts == ()


def test_nodes_that_a_run_does_not_use_yet_are_newcomers() -> None:
    used, now = hosts_of(cluster(node(2, "a"))), hosts_of(cluster(node(2, "a"), node(3, "b")))
    assert [host.shown for host in newcomers(now, used).hosts] == ["b"]
    with pytest.raises(PreflightError, match="every node of the Ray cluster that has a CPU is in the run already"):
        newcomers(used, now)


def test_a_cluster_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the Ray cluster at 10\.0\.0\.1:6379: the description of the hosts"):
        hosts_of(cluster(*(node(number, f"n{number}") for number in range(2, 20))))


def test_without_ray_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PreflightError, match=r'pip install "elastichost\[ray\]"'):
        hosts_on_ray("auto")


def test_hosts_over_ssh_are_not_listed_again() -> None:
    hosts = hosts_of_addresses(("a", "b"))
    assert listed_anew(hosts) is hosts


def test_the_command_for_an_agent_on_ray_starts_a_relay() -> None:
    host = hosts_of(cluster(node(2, "a"))).hosts[0]
    python, *arguments = agent_command(host.model_copy(update={"python": "/there/python"}), None)
    module = "elastichost.supervisor.remote"
    there = ["/there/python", "-m", f"{module}.agent"]
    assert [python, *arguments] == [
        *(sys.executable, "-m", f"{module}.ray.relay", "10.0.0.1:6379", "02" * 28, "4"),
        *there,
    ]


def test_a_host_on_ray_needs_cluster_node_and_cores() -> None:
    with pytest.raises(ValueError, match="cluster, node and cores"):
        HostSection(transport="ray", address="10.0.0.2")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("not all of its 4 CPUs are free: Ray has given some to other work", "end the job that uses them"),
        ("/usr/bin/python3: No module named 'elastichost'", f"install elastichost on the node, for {sys.executable}"),
        ("/opt/python: No such file or directory", f"same path on all nodes: {sys.executable}"),
        ("another error", "`ray status`"),
    ],
)
def test_an_error_of_ray_comes_with_a_hint(error: str, hint: str) -> None:
    assert hint in repair_of(error, hosts_of(cluster(node(2, "a"))).hosts[0])


def test_unencrypted_keys_cause_a_warning() -> None:
    hosts: HostsFile = hosts_of(cluster(node(2, "a")))
    assert [secrecy_of(hosts.hosts[0], setting).verdict for setting in ("1", "0", "")] == ["ok", "warning", "warning"]
