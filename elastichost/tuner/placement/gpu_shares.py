"""How workers share the memory of a GPU. Pure.

A process' share is fixed when it starts: torch holds it to that, and what a living worker has taken cannot be taken
back. So shares are cut once, for the most workers that the job file lets the run have, and there are never more. With
fewer the rest of the memory lies idle: `resources.workers = [min, max]` says how finely it is cut.
"""

from __future__ import annotations

from elastichost.resources import Parallelism, bounds_of

__all__ = ["most_sharing", "share_of"]


def most_sharing(workers: Parallelism, cores: int) -> int:
    """Workers there may ever be of a job whose workers are on GPUs. workers: `resources.workers`; where that leaves it
    open one a core."""
    _, high = bounds_of(workers, max(1, cores))
    return high


def share_of(gpu_memory_fraction: float, workers: int, gpus: int) -> float:
    """Of a GPU's memory, for each of so many workers that are dealt to them round-robin: those on the GPU that has most
    of them have `gpu_memory_fraction` of it together."""
    return gpu_memory_fraction / -(-workers // gpus) if gpus else 1.0
