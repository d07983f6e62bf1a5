"""Measures the accuracy of the estimate of a job's peak memory.

benchmark    the command: errors of the estimates
job_runner   estimates, runs and watches one job after another
job_shapes   the jobs
run_entries  entry points of the jobs' processes
footprint    measures the memory of a running job from outside
"""
