"""The numbers of the simulated host that many jobs share, each with its source.

"measured": on this runtime, in benchmarks/RESULTS.md. "runtime": the value that this runtime uses. "design": a
requirement for which the dispatcher was designed. "assumed": not measured here; a guess of the right order, the same
for every policy. The setting is that of RMixer (TPDS 2024): many small jobs, each with one reader thread, on a host
with 1 or 4 GPUs. The numbers of its jobs and of its machine are not known here, so sizes are assumed.
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

# --- interference of jobs ---------------------------------------------------------------------------------------------

# assumed: exponent p of T = (read^p + step^p)^(1/p), because reader and step overlap; with some prefetched batches, T
# is nearly the longer of the two
PIPELINE = 8.0
# assumed: number of threads that saturate the host's memory bandwidth if all wait for rows, as a share of the cores
STALLED_THREADS = 0.4
# assumed: largest slowdown by context switches and lost cache contents when more threads want cores than there are
CPU_SWITCH = 0.08
# assumed: largest slowdown of kernels while several processes take turns on a GPU (slices of about 2 ms, 0.2 ms for a
# switch); 0 with MPS, because kernels overlap
GPU_SWITCH = 0.1
# assumed: slowdown beside jobs of a kind that keep all cores busy, and a GPU: medians of log-normal values, and the
# standard deviation of their logarithm
PAIR_CPU, PAIR_GPU, PAIR_LOG_SD = 0.15, 0.08, 0.6
# assumed: share by which each further thread of a job raises the core-seconds of a sample
THREAD_OVERHEAD = 0.04
MODE_THREADS = (1, 2, 4, 8)  # runtime: workers of a job's modes on the CPU; a mode on a GPU has one

# --- the dispatcher's times -------------------------------------------------------------------------------------------

WINDOW_S, WARM_UP_S = 3.0, 4.0  # runtime: length of a window; time from a job's start to its first measured window
REST_S, MOST_STARTS = 10.0, 5  # runtime: rest of an evicted job; a job with this number of starts fails instead

# --- start, checkpoint, evaluation ------------------------------------------------------------------------------------

START_S = 1.0  # runtime: from the decision to the first batch
START_GPU_S = 2.0  # assumed: additional on a GPU, for the CUDA context, libraries and the first kernels
CHECKPOINT_EVERY_S = 60.0  # runtime: the default of the job file; a kill loses what was trained since
CHECKPOINT_LEAST_S = 1.0  # assumed: constant part of an eviction (to reach a batch boundary and end), and of a load
CHECKPOINT_BYTES_PER_S = 1e9  # assumed: of the disk
EVALUATION = 0.03  # assumed: evaluation after the training, as a share of the training
EVALUATION_BYTES = 0.05  # assumed: memory that the evaluation adds, as a share of the memory after training

# --- errors of the dispatcher's estimates -----------------------------------------------------------------------------

PRIOR_LOG_SD = 0.4  # assumed: log error of speeds and shares before a job of the family was measured
MEASURED_LOG_SD = 0.05  # assumed: log error that remains after measurements
NOISE_LOG_SD = 0.06  # design: speeds on a shared machine differ by 3 to 8 % from one window to the next
ESTIMATE_LOG_SD = 0.12  # design: the median error of estimates of peak memory is at most 15 %
# assumed: share of families with files that state much too little memory (rows of tables that grow), and the least and
# largest factor
LIES, LIE_FACTOR = 0.1, (1.4, 2.2)

# --- jobs -------------------------------------------------------------------------------------------------------------

JOB_MEDIAN_S, JOB_LOG_SD, JOB_RANGE_S = 40.0, 0.5, (8.0, 240.0)  # assumed: alone, in the fastest mode
COST_LOG_SD = 0.3  # assumed: for each cost, between families of a kind
TABLE_LOG_SD = 0.5  # assumed: for the bytes of tables
FILLING = (0.3, 0.8)  # assumed: least and largest share of a job's memory that fills while it trains
PROCESS_BYTES = 0.35 * GB  # measured: private memory of a worker is 116 to 345 MiB, that of a PS about 100 MB
GPU_PROCESS_BYTES = 1.2 * GB  # assumed: on the host, for a process with CUDA libraries and pinned buffers
CONTEXT_BYTES = 0.45 * GB  # design: each process takes 300 MB of a GPU and more
ACTIVATION_BYTES = 0.5 * GB  # assumed: on a GPU, in addition to the tables
MOST_OF_A_GPU = 0.8  # assumed: a job that needs a larger share of a GPU's memory has no mode there


class SampleCosts(msgspec.Struct, frozen=True):
    """The median job of a kind. Times are those of one sample in a common unit: only their ratios count, because each
    job is scaled to its duration.

    read_cpu, read_wait, read_input: times of the one reader thread: on a core, waiting for a remote source, and reading
    from the host's own disk or network. input_share: share of that input which it uses then. launch: time of a thread
    on the host; copy: time of the PCIe link; kernel: time of the GPU. occupancy, gpu_bandwidth: shares of the GPU's
    multiprocessors and of its memory bandwidth that a kernel uses. compute: core-seconds on the CPU, instead of launch,
    copy and kernel; stall: the share of compute that waits for memory. table_bytes: rows and their optimizer state.
    """

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


# All of it is assumed. It follows RMixer's finding that most such jobs wait for their single-threaded readers, and the
# division of the time of a sample of a DLRM (a quarter in rows, the rest in the dense part, which a GPU computes much
# faster).
REFERENCES: dict[Kind, SampleCosts] = {
    "input": SampleCosts(0.75, 0.15, 0.1, 0.15, 0.05, 0.12, 0.3, 0.3, 2.0, 0.3, 1.5 * GB),
    "embedding": SampleCosts(0.4, 0.05, 0.05, 0.25, 0.25, 0.45, 0.35, 0.7, 6.0, 0.55, 5.0 * GB),
    "dense": SampleCosts(0.15, 0.02, 0.02, 0.1, 0.05, 0.85, 0.8, 0.3, 20.0, 0.1, 1.0 * GB),
    "balanced": SampleCosts(0.6, 0.05, 0.05, 0.25, 0.1, 0.4, 0.5, 0.4, 8.0, 0.3, 2.5 * GB),
}
