"""Clusters and hosts in virtual time, on which policies are compared; part of the validation suite, not of the package.

queueing          the true speed of a job: fork-join queues, tables of their results, interpolation
cluster           many jobs on the hosts of a cluster: arrivals, grants, failures, noise, growing memory
policies          decide which processes each job gets: elastichost's policy, published ones, and two with true speeds
colocation        many small jobs on one host, under the decisions of its dispatcher
policy_registry   policies by name
"""
