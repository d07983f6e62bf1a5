"""A Ray cluster as the hosts of a run: all its nodes except this machine's node, which is host 0.

A separate process (`remote.ray.nodes`) lists the nodes, because the supervisor never imports ray.
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
JOIN = "make this machine a node of the cluster: `ray start --address=HEAD:6379`; check it with `ray status`"


class RayNode(msgspec.Struct, frozen=True):
    """A node that is alive. node: Ray's id of it; cores: its resource "CPU", rounded down."""

    node: str
    address: str
    hostname: str
    cores: int


class RayCluster(msgspec.Struct, frozen=True):
    """A Ray cluster. address: of its control service (GCS), host:port; own: the id of this machine's node."""

    address: str
    own: str
    nodes: tuple[RayNode, ...]


def hosts_on_ray(address: str) -> HostsFile:
    """The hosts of the Ray cluster at `address`. Raises PreflightError when ray is not installed or no cluster answers,
    ConfigError when the cluster has too many nodes."""
    return hosts_of(_read_cluster(address))


def listed_anew(hosts: HostsFile) -> HostsFile:
    """The hosts of an earlier run; those of a Ray cluster are listed again, because nodes join and leave. Raises as
    `hosts_on_ray`."""
    clusters = [host.cluster for host in hosts.hosts if host.transport == "ray"]
    return hosts_on_ray(clusters[0]) if clusters else hosts


def newcomers(hosts: HostsFile, used: HostsFile) -> HostsFile:
    """The hosts in `hosts` that are not in `used`. Raises PreflightError when there are none."""
    known = {host.node for host in used.hosts}
    new = tuple(host for host in hosts.hosts if host.node not in known)
    if not new:
        raise PreflightError(
            "every node of the Ray cluster that has a CPU is in the run already",
            hint="start Ray on another machine: `ray start --address=HEAD:6379`",
        )
    return hosts.model_copy(update={"hosts": new})


def _read_cluster(address: str) -> RayCluster:
    if importlib.util.find_spec("ray") is None:
        raise PreflightError("ray is not installed here", hint='pip install "elastichost[ray]", here and on all nodes')
    command = [sys.executable, "-m", NODES_MODULE, address]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired:
        late = f"no Ray cluster has answered at {address!r} within {ANSWERS_WITHIN_S:g} s"
        raise PreflightError(late, hint=JOIN) from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise PreflightError(
            lines[-1] if lines else f"the list of nodes failed: exit code {done.returncode}", hint=JOIN
        )
    return msgspec.json.decode(done.stdout, type=RayCluster)


def hosts_of(cluster: RayCluster) -> HostsFile:
    """Returns the hosts, sorted by name. Nodes without a CPU are left out: no process may compute there. There may be
    no hosts at all: nodes can join later. Raises ConfigError when there are too many."""
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
    """Each node's host name, or its address if it has none; with a part of the node's id where several share it."""
    machines = [node.hostname or node.address for node in nodes]
    return [
        name if machines.count(name) == 1 else f"{name}-{node.node[:8]}"
        for node, name in zip(nodes, machines, strict=True)
    ]
