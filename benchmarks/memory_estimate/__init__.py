"""How well the peak memory of a job is foreseen.

benchmark    estimates and runs jobs; the command
job_shapes   the jobs
run_entries  their processes
footprint    the memory of a running job, seen from outside
"""
