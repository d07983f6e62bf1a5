"""Clusters and hosts in virtual time, on which policies are compared; part of the validation suite, not of the package.

queueing          the true speed of a job: fork-join queues, tables of what they find, interpolation
cluster           many jobs on the hosts of a cluster: arrivals, grants, failures, noise, memory that grows
policies          how processes are shared among jobs: elastichost's policy, its rivals, and two with the true speeds
colocation        many small jobs on one host, as its dispatcher places them
policy_registry   policies by name
"""
