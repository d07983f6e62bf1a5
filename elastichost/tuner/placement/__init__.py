"""What goes where.

Modules:
    process_placement       which host each process of a plan is on
    resize                  a plan in another size
    rebalance               which buckets change owners
    heat, cross_host_load   how much is asked of every bucket
    gpu_shares              workers that share a GPU
    allocation, knapsack    which configuration each of several jobs gets
    core_allocation         cores among jobs that compute, by their frontiers
"""
