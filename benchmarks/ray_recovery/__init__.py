"""Measures the cost of faults on a Ray cluster, for runs of elastichost and of Ray Train.

benchmark        the command
figures          observations and figures
ray_bed          a Ray cluster on this machine
ray_bed_cluster  the process of that cluster
elastichost_run  a run of elastichost into which faults are injected
ray_train        a run of Ray Train into which faults are injected
"""
