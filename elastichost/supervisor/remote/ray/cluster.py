"""A Ray cluster as hosts of a run: each of its nodes but the one that `run` is called on, which is host 0.

A process of its own asks the cluster (`remote.ray.nodes`): this one never imports ray.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from elastichost.config.hosts import HostsFile, checked_hosts
from elastichost.errors import PreflightError

__all__ = ["DEFAULT_ADDRESS", "RayCluster", "RayNode", "hosts_of", "hosts_on_ray", "listed_anew", "newcomers"]

DEFAULT_ADDRESS = "auto"
NODES_MODULE = "elastichost.supervisor.remote.ray.nodes"
ANSWERS_WITHIN_S = 20.0
JOIN = "make this machine a node of it: `ray start --address=HEAD:6379`; `ray status` tells whether it is"


class RayNode(msgspec.Struct, frozen=True):
    """One that is alive. cores: its resource CPU, whole ones."""

    node: str
    address: str
    hostname: str
    cores: int


class RayCluster(msgspec.Struct, frozen=True):
    """address: where it is reached; own: the node of this machine."""

    address: str
    own: str
    nodes: tuple[RayNode, ...]


def hosts_on_ray(address: str) -> HostsFile:
    """Raises PreflightError without ray or without a cluster there, ConfigError when it has too many nodes."""
    return hosts_of(_read_cluster(address))


def listed_anew(hosts: HostsFile) -> HostsFile:
    """Hosts of an earlier run: a cluster's nodes come and go. Raises as `hosts_on_ray`."""
    clusters = [host.cluster for host in hosts.hosts if host.transport == "ray"]
    return hosts_on_ray(clusters[0]) if clusters else hosts


def newcomers(hosts: HostsFile, used: HostsFile) -> HostsFile:
    """Those that a run does not use yet. Raises PreflightError when there are none."""
    known = {host.node for host in used.hosts}
    new = tuple(host for host in hosts.hosts if host.node not in known)
    if not new:
        raise PreflightError(
            "the Ray cluster has no node that is not in the run",
            hint="start one there: `ray start --address=HEAD:6379`",
        )
    return hosts.model_copy(update={"hosts": new})


def _read_cluster(address: str) -> RayCluster:
    if importlib.util.find_spec("ray") is None:
        raise PreflightError("ray is not installed here", hint='pip install "elastichost[ray]", here and on the nodes')
    command = [sys.executable, "-m", NODES_MODULE, address]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired:
        late = f"no Ray cluster has answered at {address!r} within {ANSWERS_WITHIN_S:g} s"
        raise PreflightError(late, hint=JOIN) from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise PreflightError(lines[-1] if lines else f"Ray ended with {done.returncode}", hint=JOIN)
    return msgspec.json.decode(done.stdout, type=RayCluster)


def hosts_of(cluster: RayCluster) -> HostsFile:
    """None when it has no other node: they may join later. Those without a core are left out: nobody is to compute
    there. Raises ConfigError when there are too many."""
    own = next((node for node in cluster.nodes if node.node == cluster.own), None)
    others = [node for node in cluster.nodes if node.node != cluster.own and node.cores > 0]
    names = _names(others)
    sections = [
        {
            "transport": "ray",
            "cluster": cluster.address,
            "node": node.node,
            "address": node.address,
            "name": name,
            "interface": node.address,
            "cores": node.cores,
        }
        for node, name in sorted(zip(others, names, strict=True), key=lambda one: one[1])
    ]
    here = {"address": own.address if own is not None else ""}
    return checked_hosts({"supervisor": here, "hosts": sections}, f"the Ray cluster at {cluster.address}")


def _names(nodes: Sequence[RayNode]) -> list[str]:
    """Of the machine; with a part of the node's id where a machine has several."""
    machines = [node.hostname or node.address for node in nodes]
    return [
        name if machines.count(name) == 1 else f"{name}-{node.node[:8]}"
        for node, name in zip(nodes, machines, strict=True)
    ]
