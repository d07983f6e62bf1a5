"""Kinds of hosts of a simulated cluster."""

from __future__ import annotations

from benchmarks.simulator.cluster.hosts import ClusterHost

__all__ = ["HOST_MIXES", "hosts_of", "shown_hosts"]

GIB = 2**30
# The hosts follow each other in this order, again and again. three: sizes of the CPU hosts of a published cluster
# (openb_node_list_all_node.csv of alibaba/clusterdata, gpu-v2023); the speeds of their cores are assumed.
HOST_MIXES: dict[str, tuple[ClusterHost, ...]] = {
    "same": (ClusterHost(64, 256 * GIB),),
    "two": (ClusterHost(32, 128 * GIB, 0.8), ClusterHost(96, 384 * GIB)),
    "three": (ClusterHost(32, 256 * GIB, 0.8), ClusterHost(96, 768 * GIB), ClusterHost(128, 768 * GIB, 1.25)),
}


def hosts_of(mix: str, count: int) -> tuple[ClusterHost, ...]:
    """The hosts of a cluster. mix: a name in HOST_MIXES. Raises KeyError for another name."""
    kinds = HOST_MIXES[mix]
    return tuple(kinds[index % len(kinds)] for index in range(count))


def shown_hosts(mix: str) -> str:
    """The kinds of hosts of a mix, for people."""

    def shown(host: ClusterHost) -> str:
        speed = "" if host.core_speed == 1.0 else f" of speed {host.core_speed:g}"
        return f"{host.cores} cores{speed} and {host.memory_bytes / GIB:.0f} GiB"

    return ", ".join(shown(host) for host in HOST_MIXES[mix])
