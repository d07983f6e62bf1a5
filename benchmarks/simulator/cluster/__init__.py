"""Many jobs on the hosts of a cluster, in virtual time.

calibration     every number of the simulated world, with its source
random_streams  noise and incidents of each job by seed, independent of the policy
views           the input and the output of a policy
jobs            families of repeated jobs, requests of users, arrivals
memory_curve    the memory of a job over its samples
hosts           cores and memory of hosts; placement of processes
settings        hosts, limits, styles of changes, rates of incidents
episodes        stragglers, hot PS and memory shortages: their duration and their end
blocks          the measurements of jobs, block by block
traces          recorded arrivals, replayed as they are
progress        the progress of all jobs in columns, advanced by compiled code
job_run         the state of one simulated job
crowding        jobs that share hosts slow each other down
grant_executor  places, changes and releases granted processes
engine          the events, and the decisions
outcome         the outcome of every job
"""
