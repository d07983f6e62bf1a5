"""Nodes of a Ray cluster as hosts of a run. Only separate processes import ray, never the supervisor itself.

Modules:
    cluster      a Ray cluster as hosts of a run
    nodes        lists the nodes: `python -m elastichost.supervisor.remote.ray.nodes ADDRESS`
    relay        a child of the supervisor that takes the place of ssh: it connects the supervisor to the actor
    carrier      the actor on a node; the agent is its child
    connection   a connection to the cluster
"""
