"""The measured blocks of simulated jobs, without an event for each block.

block_log  the blocks of one job and their observations, computed when they are read
job_views  the views of all jobs at one decision, made when they are read
job_table  the views of all jobs; in columns, the times at which their blocks end
"""
