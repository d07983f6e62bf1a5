"""Assigns the GPUs of a job to its workers: each GPU has at most one, and all other workers train on the CPU. Pure.

Rules:

1. A GPU has one worker. Two processes on one GPU take turns: together they replay 0.56 times as many graphs a second as
   one alone (H200, without MPS; docs/gpu.md).
2. A worker keeps its kind as long as it is in the plan: a running process cannot move to a GPU, or to another one.
3. New workers get the GPUs that are free, in the order of their indices. GPUs are on host 0.
4. A plan that shrinks loses its CPU workers first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import Parallelism, bounds_of

__all__ = ["gpus_of_workers", "has_both_kinds", "kept_first", "most_workers", "plan_without_gpus"]


def most_workers(workers: Parallelism, gpus: int) -> int:
    """The largest number of workers that a job on GPUs may have. workers: `resources.workers`; if it is left open, one
    worker for each GPU, and none on the CPU."""
    _, high = bounds_of(workers, max(1, gpus))
    return high


def gpus_of_workers(present: Mapping[int, int | None], indices: Iterable[int], gpus: Sequence[int]) -> dict[int, int]:
    """Returns worker index -> GPU, for the workers of `indices` that have one. present: index -> GPU of the existing
    workers, None for a CPU worker."""
    wanted = sorted(indices)
    found = {index: gpu for index in wanted if (gpu := present.get(index)) is not None and gpu in gpus}
    free = [gpu for gpu in gpus if gpu not in found.values()]
    for index, gpu in zip((index for index in wanted if index not in present), free, strict=False):
        found[index] = gpu
    return found


def kept_first(workers: Iterable[ProcessSpec]) -> list[int]:
    """The indices of workers in the order in which a smaller plan keeps them: those with a GPU, then the lowest."""
    return [spec.index for spec in sorted(workers, key=lambda spec: (spec.gpu is None, spec.index))]


def has_both_kinds(workers: Iterable[ProcessSpec]) -> bool:
    """Whether some of the workers have a GPU and others have none."""
    return len({spec.gpu is None for spec in workers}) == 2


def plan_without_gpus(plan: Plan, lost: Collection[int], gpus: Sequence[int], reason: str) -> Plan:
    """The plan without the workers of lost GPUs. gpus: those of the job that are left.

    A GPU without a worker gets one in place of each worker that leaves. If the plan has no worker then, one trains on
    the CPU. These workers have indices that the plan did not have, because a process keeps its kind. They are not
    pinned to cores yet.
    """
    left = [spec for spec in plan.processes if spec.gpu is None or spec.gpu not in lost]
    leaving = [spec for spec in plan.workers if spec.gpu in lost]
    used = {spec.gpu for spec in left}
    free: list[int | None] = [gpu for gpu in gpus if gpu not in used and gpu not in lost]
    if leaving and not free and not any(spec.role == "worker" for spec in left):
        free = [None]
    known = {spec.index for spec in plan.workers}
    unused = (index for index in count() if index not in known)
    for spec, gpu, index in zip(leaving, free, unused, strict=False):
        share = 1.0 if gpu is None else spec.gpu_memory_fraction
        left.append(msgspec.structs.replace(spec, index=index, gpu=gpu, gpu_memory_fraction=share, cores=()))
    return msgspec.structs.replace(plan, processes=tuple(left), reason=reason)
