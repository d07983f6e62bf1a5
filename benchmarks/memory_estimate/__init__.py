"""How well the peak memory of a job is foreseen.

benchmark    errors of the estimates; the command
job_runner   estimates, runs and watches one job after another
job_shapes   the jobs
run_entries  their processes
footprint    the memory of a running job, seen from outside
"""
