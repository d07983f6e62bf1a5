"""Many jobs on the hosts of a cluster, in virtual time.

calibration     every number of the simulated world, and where it is from
random_streams  noise and incidents of each job, by seed, whatever a policy does
views           what a policy sees, and what it answers
jobs            families of recurrent jobs, their users' requests, their arrivals
memory_curve    a job's memory over its samples
hosts           cores and memory of hosts; where processes are placed
settings        hosts, limits, styles of moving, rates of incidents
episodes        stragglers, hot PS, memory that ran short: since when, and what became of it
measurements    what is measured of a job, block by block
job_run         one job while it is simulated
grant_executor  placing, changing and releasing what a policy granted
engine          the heap of events, and the decisions
outcome         what became of every job
"""
