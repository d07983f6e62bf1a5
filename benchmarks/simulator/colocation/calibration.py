"""What the simulated host of many jobs is like, number by number, and where each number comes from.

"measured": on this runtime, in benchmarks/RESULTS.md. "runtime": the value this runtime works with. "design": a
requirement that the dispatcher was designed for. "assumed": nobody measured it here; a plain guess of the right order,
the same for every policy. RMixer (TPDS 2024) is where the setting is from: many small jobs, each with one reader
thread, on a host with 1 or 4 GPUs; its jobs and its machine are not known here in numbers, so sizes are assumed.
"""

from __future__ import annotations

import msgspec

from elastichost.tuner.colocation.kinds import Kind

__all__ = [
    "ACTIVATION_BYTES",
    "CHECKPOINT_BYTES_PER_S",
    "CHECKPOINT_EVERY_S",
    "CHECKPOINT_LEAST_S",
    "CONTEXT_BYTES",
    "COST_LOG_SD",
    "CPU_SWITCH",
    "ESTIMATE_LOG_SD",
    "EVALUATION",
    "EVALUATION_BYTES",
    "FILLING",
    "GB",
    "GPU_PROCESS_BYTES",
    "GPU_SWITCH",
    "JOB_LOG_SD",
    "JOB_MEDIAN_S",
    "JOB_RANGE_S",
    "LIES",
    "LIE_FACTOR",
    "MEASURED_LOG_SD",
    "MODE_THREADS",
    "MOST_OF_A_GPU",
    "MOST_STARTS",
    "NOISE_LOG_SD",
    "PAIR_CPU",
    "PAIR_GPU",
    "PAIR_LOG_SD",
    "PIPELINE",
    "PRIOR_LOG_SD",
    "PROCESS_BYTES",
    "REFERENCES",
    "REST_S",
    "STALLED_THREADS",
    "START_GPU_S",
    "START_S",
    "TABLE_LOG_SD",
    "THREAD_OVERHEAD",
    "WARM_UP_S",
    "WINDOW_S",
    "SampleCosts",
]

GB = 10**9

# --- how jobs slow each other down ------------------------------------------------------------------------------------

# assumed: reader and step overlap, T = (read^p + step^p)^(1/p); with some batches of prefetch nearly the longer of both
PIPELINE = 8.0
# assumed: that wait for rows at once use up the host's memory bandwidth, as a share of its cores
STALLED_THREADS = 0.4
# assumed: slower at most by so much when more threads want the cores than there are: switches, and what caches lose
CPU_SWITCH = 0.08
# assumed: of a GPU's time, lost while several processes take turns on it (slices of about 2 ms, 0.2 ms to switch);
# with MPS nothing, their kernels overlap
GPU_SWITCH = 0.1
# assumed: slower by so much beside others of a kind that keep all cores busy, or a GPU: medians of a log-normal
PAIR_CPU, PAIR_GPU, PAIR_LOG_SD = 0.15, 0.08, 0.6
# assumed: cores' time that each further thread of a job costs all of them
THREAD_OVERHEAD = 0.04
MODE_THREADS = (1, 2, 4, 8)  # runtime: workers of a job's modes on the CPU; on a GPU one

# --- the dispatcher's clock -------------------------------------------------------------------------------------------

WINDOW_S, WARM_UP_S = 3.0, 4.0  # runtime: speeds are looked at so often, and so long after a job was started
REST_S, MOST_STARTS = 10.0, 5  # runtime: of a job that was evicted; who was started so often fails

# --- starting, saving, evaluating -------------------------------------------------------------------------------------

START_S = 1.0  # runtime: a job trains so long after it was chosen
START_GPU_S = 2.0  # assumed: CUDA context, libraries, the first kernels
CHECKPOINT_EVERY_S = 60.0  # runtime: the job file's default; what came after it is lost when a job is killed
CHECKPOINT_LEAST_S = 1.0  # assumed: of an eviction, to stand at a boundary and end; and again to load
CHECKPOINT_BYTES_PER_S = 1e9  # assumed: of the disk
EVALUATION = 0.03  # assumed: of a job's work, after its training
EVALUATION_BYTES = 0.05  # assumed: of its memory, more while it is evaluated: its peak is reached last

# --- what the dispatcher believes -------------------------------------------------------------------------------------

PRIOR_LOG_SD = 0.4  # assumed: log error of speeds and shares before a job, or a twin, was seen
MEASURED_LOG_SD = 0.05  # assumed: and what of it stays
NOISE_LOG_SD = 0.06  # design: speeds on a shared machine differ by 3 to 8 % from one window to the next
ESTIMATE_LOG_SD = 0.12  # design: of estimates of peak memory the median error is 15 % at most
# assumed: so many families' files say much too little (rows of tables that grow), and by which factor: from, to
LIES, LIE_FACTOR = 0.1, (1.4, 2.2)

# --- jobs -------------------------------------------------------------------------------------------------------------

JOB_MEDIAN_S, JOB_LOG_SD, JOB_RANGE_S = 40.0, 0.5, (8.0, 240.0)  # assumed: alone, in the fastest mode
COST_LOG_SD = 0.3  # assumed: of each cost, between families of a kind
TABLE_LOG_SD = 0.5  # assumed
FILLING = (0.3, 0.8)  # assumed: share of a job's memory that fills while it trains
PROCESS_BYTES = 0.35 * GB  # measured: private memory of a worker is 116 to 345 MiB, of a PS about 100 MB
GPU_PROCESS_BYTES = 1.2 * GB  # assumed: a process with CUDA libraries and pinned buffers, on the host
CONTEXT_BYTES = 0.45 * GB  # design: of a GPU, 300 MB and more by each process
ACTIVATION_BYTES = 0.5 * GB  # assumed: of a GPU, beside the tables
MOST_OF_A_GPU = 0.8  # assumed: jobs that would take more of one have no mode there


class SampleCosts(msgspec.Struct, frozen=True):
    """The median job of a kind. Seconds of a sample, as multiples of one and the same unit (jobs are scaled by their
    length). read_cpu, read_wait, read_input: of the one reader thread: on a core, waiting for a remote source, and for
    the host's own disk or network, of which it then takes `input_share`. launch: of a thread on the host; copy: of the
    PCIe link; kernel: of the GPU, of whose multiprocessors a kernel fills `occupancy` and of whose bandwidth it takes
    `gpu_bandwidth`. compute: core-seconds in place of all these on the CPU, `stall` of them waiting for memory.
    table_bytes: rows and their optimizer state."""

    read_cpu: float
    read_wait: float
    read_input: float
    launch: float
    copy: float
    kernel: float
    occupancy: float
    gpu_bandwidth: float
    compute: float
    stall: float
    table_bytes: float
    input_share: float = 0.15


# assumed, all of it: after RMixer's finding that most such jobs wait for their single-threaded readers, and from where
# the time of a sample of a DLRM goes (a quarter in rows, the rest in the dense part, which a GPU does much faster)
REFERENCES: dict[Kind, SampleCosts] = {
    "input": SampleCosts(0.75, 0.15, 0.1, 0.15, 0.05, 0.12, 0.3, 0.3, 2.0, 0.3, 1.5 * GB),
    "embedding": SampleCosts(0.4, 0.05, 0.05, 0.25, 0.25, 0.45, 0.35, 0.7, 6.0, 0.55, 5.0 * GB),
    "dense": SampleCosts(0.15, 0.02, 0.02, 0.1, 0.05, 0.85, 0.8, 0.3, 20.0, 0.1, 1.0 * GB),
    "balanced": SampleCosts(0.6, 0.05, 0.05, 0.25, 0.1, 0.4, 0.5, 0.4, 8.0, 0.3, 2.5 * GB),
}
