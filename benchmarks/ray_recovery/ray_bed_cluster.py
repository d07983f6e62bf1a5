"""The process that runs the cluster of a `RayBed`: `python -m benchmarks.ray_recovery.ray_bed_cluster`.

Ray ends every process that has been connected to a cluster's GCS a minute after the cluster has ended. Therefore only
this process connects to it. It reads one JSON line for each order and answers with one JSON line. It ends at the end of
its input, and the cluster ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ray.cluster_utils import Cluster

__all__ = ["main"]


def main() -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stdout carries answers only, so the output of Ray goes to stderr
    cluster, nodes = Cluster(shutdown_at_exit=True), dict[str, Any]()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            match order["do"]:
                case "add":
                    first = {"include_dashboard": False} if cluster.head_node is None else {}
                    node = cluster.add_node(num_cpus=order["cpus"], **first)
                    nodes[node.node_id] = node
                    answer: object = [node.node_id, str(cluster.address)]
                case "kill":
                    cluster.remove_node(nodes.pop(order["node"]), allow_graceful=False)
                    answer = None
                case "actors":
                    table = cluster.global_state.actor_table(None)
                    answer = [str(one["Name"]) for one in table.values() if one["State"] != "DEAD"]
                case other:
                    raise ValueError(f"unknown order: {other}")
            output.write(json.dumps(answer) + "\n")
            output.flush()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
