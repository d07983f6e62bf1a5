"""Nodes of a Ray cluster as machines of a run. Only processes of their own import ray.

Modules:
    cluster      a Ray cluster as hosts of a run
    nodes        lists the nodes: `python -m elastichost.supervisor.remote.ray.nodes ADDRESS`
    relay        stands where ssh would: a child of the supervisor that talks to an actor
    carrier      the actor on a node, which has the agent as its child
    connection   a connection to the cluster
"""
