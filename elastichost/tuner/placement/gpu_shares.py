"""Divides the memory of a GPU among workers. Pure.

The share of a process is fixed when it starts: torch enforces it, and memory of a running worker cannot be taken back.
So shares are computed once, for the largest number of workers that the job file allows, and the run never has more.
With fewer workers the rest of the memory is idle; `resources.workers = [min, max]` determines the size of a share.
"""

from __future__ import annotations

from elastichost.resources import Parallelism, bounds_of

__all__ = ["most_sharing", "share_of"]


def most_sharing(workers: Parallelism, gpus: int) -> int:
    """The largest number of workers that a job on GPUs may have. workers: `resources.workers`; if it is left open, one
    worker for each GPU.

    Two processes on one GPU take turns: together they replay 0.56 times as many graphs a second as one alone (H200,
    without MPS; docs/gpu.md).
    """
    _, high = bounds_of(workers, max(1, gpus))
    return high


def share_of(gpu_memory_fraction: float, workers: int, gpus: int) -> float:
    """The share of a GPU's memory for each worker, if `workers` workers are assigned to `gpus` GPUs round-robin. The
    workers of the GPU with most workers have `gpu_memory_fraction` of its memory together. 1.0 without GPUs."""
    return gpu_memory_fraction / -(-workers // gpus) if gpus else 1.0
