"""Tells which nodes a Ray cluster has: `python -m elastichost.supervisor.remote.ray.nodes ADDRESS`; JSON on stdout.

Ray itself takes 10 to 15 s to know that a node is dead, so each is knocked at: a run is resumed sooner than that.
"""

from __future__ import annotations

import os
import sys

import msgspec
import ray

from elastichost.supervisor.remote.link_probe import knock
from elastichost.supervisor.remote.ray.cluster import RayCluster, RayNode
from elastichost.supervisor.remote.ray.connection import connected, take_output

__all__ = ["main"]


def main(address: str) -> int:
    output = take_output()
    with connected(address):
        context = ray.get_runtime_context()
        nodes = tuple(
            RayNode(
                str(one["NodeID"]),
                str(one["NodeManagerAddress"]),
                str(one["NodeManagerHostname"]),
                int(one["Resources"].get("CPU", 0)),
            )
            for one in ray.nodes()
            if one["Alive"] and not knock(str(one["NodeManagerAddress"]), int(one["NodeManagerPort"]))
        )
        cluster = RayCluster(str(context.gcs_address), str(context.get_node_id()), nodes)
    with os.fdopen(output, "wb") as file:
        file.write(msgspec.json.encode(cluster))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
