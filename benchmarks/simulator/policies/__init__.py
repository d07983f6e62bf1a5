"""Policies that are compared: how each decides which processes every job of a cluster gets.

elastichost_policy   this project's policy
elastichost_memory   the memory that it grants
static               users' configurations, and the best static one
elastic_scheduler    adds a worker while it pays
optimus, pollux      the published schedulers, as far as they apply
dlrover_brain        DLRover's production heuristics
dlrover_rm           the DLRover-RM paper's plans
oracle               knows the truth: a bound
admission            waiting jobs in order of arrival
configurations       those within the limits, and on the frontier
allocation_cache     the last allocation, and what was refused
merged_observations  one observation for each configuration of a job
"""
