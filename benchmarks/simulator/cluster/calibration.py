"""The numbers of the cluster simulator's world, each with its source.

"measured": on this runtime, in benchmarks/RESULTS.md. "design": the noise, load and memory figures for which the tuner
was designed. "assumed": not measured here; a guess of the right order, the same for every policy.
"""

from __future__ import annotations

__all__ = [
    "ARRIVAL_CV",
    "BLOCK_S",
    "BLOCK_WINDOW_S",
    "CHECKPOINT_EVERY_S",
    "CHECKPOINT_S_PER_GB",
    "COV_CLASSES",
    "DIRECT_LOG_ERROR",
    "DURATION_LOG_SD",
    "DURATION_MEDIAN_S",
    "DURATION_RANGE_S",
    "FAMILY_JITTER_LOG_SD",
    "HANDOVER_S",
    "HEAPS_BETA",
    "HOST_FAILURES_PER_HOUR",
    "HOST_REPAIR_S",
    "HOT_LEVELS",
    "HOT_PER_HOUR",
    "INTERFERENCE",
    "JOIN_S",
    "LEAST_REQUEST",
    "MEMORY_REQUEST_FACTOR",
    "MOST_OOM_KILLS",
    "NETWORK_BYTES_PER_S",
    "NOISE_RHO",
    "PARTIAL_RATE",
    "PROCESS_FAILURES_PER_HOUR",
    "RESTART_S",
    "SERVER_BACK_S",
    "SERVER_BYTES",
    "STOP_AND_RESTART_S",
    "STRAGGLERS_PER_HOUR",
    "STRAGGLER_SPEED",
    "STRAGGLE_MEAN_S",
    "TABLE_BYTES",
    "TICK_S",
    "WORKER_BACK_S",
    "WORKER_BYTES",
]

# --- decisions and measurements ---------------------------------------------------------------------------------------

TICK_S = 30.0  # design: one decision every 30 s of virtual time, and at arrivals and ends
BLOCK_S = 30.0  # design: a block has at least 20 s and 50 iterations
BLOCK_WINDOW_S = 1.0  # window of a block; the speed of a block is the median of its windows
NOISE_RHO = (0.6, 0.75)  # design: lag-1 autocorrelation of real windows
# design: 53 % of jobs have a coefficient of variation below 0.1, 25 % above 0.5: (share, lowest, highest)
COV_CLASSES = ((0.53, 0.02, 0.1), (0.22, 0.1, 0.5), (0.25, 0.5, 0.9))
DIRECT_LOG_ERROR = 0.03  # assumed: log error of a block's mean of times that processes measure

# --- moving, checkpoints, recovery ------------------------------------------------------------------------------------

JOIN_S = 0.16  # measured: from a request to scale to the first batch of the new worker
HANDOVER_S = 0.009  # measured: from the freeze of buckets to the publication
NETWORK_BYTES_PER_S = 1.25e9  # assumed: 10 Gbit/s between hosts, for rows that move
PARTIAL_RATE = 0.85  # measured: share of the throughput that is kept while a worker joins (median)
CHECKPOINT_EVERY_S = 60.0  # the default of the job file
CHECKPOINT_S_PER_GB = 0.23  # measured: training pauses, for writing or for loading
WORKER_BACK_S = 0.15  # measured: until the successor of a killed worker has trained a batch
SERVER_BACK_S = 0.10  # measured: until training has its full rate after a PS was killed
RESTART_S = 6.6  # measured: resume of a whole run (imports of torch)
# papers: 30 s is the restart of Pollux (OSDI '21, section 4.3), "about 5 minutes" the stop-and-restart migration of the
# DLRover-RM paper; Optimus and elastic schedulers are between them
STOP_AND_RESTART_S = (30.0, 90.0)

# --- incidents --------------------------------------------------------------------------------------------------------

PROCESS_FAILURES_PER_HOUR = 0.002  # assumed: for each process; one of twenty fails within a day
HOST_FAILURES_PER_HOUR = 1 / 720  # assumed: for each host; one a month
HOST_REPAIR_S = 900.0  # assumed
STRAGGLERS_PER_HOUR = 0.01  # assumed: for each worker
STRAGGLER_SPEED = 1 / 3  # design: computing speed of a straggler / that of the other workers
STRAGGLE_MEAN_S = 1800.0  # assumed: if it is not replaced before
HOT_PER_HOUR = 0.05  # assumed: for each job; a PS stays hot until buckets are moved or the job ends
HOT_LEVELS = (0.15, 0.45)  # assumed: share of the work on rows that one PS gets beyond its even share
MOST_OOM_KILLS = 3  # design: a job that was killed more often fails
INTERFERENCE = 0.1  # assumed: share by which computing is slower on a host with all other cores used by other jobs

# --- jobs -------------------------------------------------------------------------------------------------------------

ARRIVAL_CV = 4.0  # design: 3 to 13; coefficient of variation of the time between arrivals
FAMILY_JITTER_LOG_SD = 0.1  # assumed: variation of the costs between the jobs of a family
DURATION_MEDIAN_S = 7200.0  # assumed: in the reference configuration; recommendation jobs take hours
DURATION_LOG_SD = 1.1  # assumed: heavy tail, the mean is 1.8 medians
DURATION_RANGE_S = (600.0, 172_800.0)
HEAPS_BETA = (0.4, 0.95)  # design: distinct ids = K n^beta
TABLE_BYTES = (2e9, 60e9)  # assumed: of all tables at the end of the job, log-uniform
WORKER_BYTES = 250_000_000  # measured: private memory of a worker, 116 to 345 MiB
SERVER_BYTES = 100_000_000  # assumed: private memory of a PS
LEAST_REQUEST = 0.25  # assumed: least request of a user, as a share of the user's cores
MEMORY_REQUEST_FACTOR = (0.8, 5.0)  # assumed: requested / needed memory, log-uniform: 12 % of requests are too small
