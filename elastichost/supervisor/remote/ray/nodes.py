"""Lists the nodes of a Ray cluster as JSON on stdout: `python -m elastichost.supervisor.remote.ray.nodes ADDRESS`.

Ray notices only after 10 to 15 s that a node is dead, and `resume` may come sooner. So this program connects to each
node's raylet (Ray's daemon), and leaves out the nodes that do not answer.
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
    """Writes a RayCluster. Returns the exit code."""
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
