"""The compared policies: each decides which processes every job of a cluster gets.

elastichost_policy   the policy of this project
elastichost_memory   the memory that it grants
static               the configurations of users, and the best static one
elastic_scheduler    adds workers while they pay
optimus, pollux      the published schedulers, as far as they apply
dlrover_brain        DLRover's production heuristics
dlrover_rm           the plans of the DLRover-RM paper
integer_programs     Sia and the Optimal Resource Allocator
oracle               knows the truth: a bound
admission            starts waiting jobs in order of arrival
configurations       the configurations within the limits and on the frontier
allocation_cache     the last allocation
merged_observations  one observation for each configuration of a job
"""
