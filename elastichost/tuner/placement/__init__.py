"""Assigns processes to hosts, buckets to PS, and configurations and cores to jobs.

Modules:
    process_placement       assigns the processes of a plan to hosts
    resize                  changes the size of a plan
    rebalance               decides which buckets get another owner
    heat, cross_host_load   measure the load of every bucket
    gpu_workers             assigns GPUs to workers; all other workers train on the CPU
    readers                 the reader processes of a plan
    allocation, knapsack    choose a configuration for each of several jobs
    core_allocation         divides cores among jobs by their frontiers
"""
