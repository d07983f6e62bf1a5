"""The first plan of a job that nothing is known about yet."""

from __future__ import annotations

from typing import Literal

from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import GpuDevice, bounds_of

__all__ = ["initial_plan"]

Count = str | int | tuple[int, int] | list[int]


def initial_plan(
    *,
    cores: tuple[int, ...],
    workers: Count = "auto",
    servers: Count = "auto",
    gpus: tuple[GpuDevice, ...] = (),
    gpu_memory_fraction: float = 0.9,
    access: Literal["auto", "direct", "served"] = "auto",
) -> Plan:
    """Processes and threads before anything was measured; which core each gets is `supervisor.pinning`'s.

    Workers: one a core, each with one thread whatever their number: on CPU more one-thread workers beat fewer
    many-thread ones, because a recommendation model's dense part is too small to share out, and two threads on
    cores that others use too collapse to 0.2-0.4 of one (measured). Servers: one, because with direct access a PS
    only makes new rows and applies dense updates. A [min, max] starts at its bound nearest to that.
    GPUs are dealt to workers round-robin, and the workers on one GPU share `gpu_memory_fraction` of its memory.
    """
    worker_count = _clamp(workers, len(cores))
    server_count = _clamp(servers, 1)
    chosen: Literal["direct", "served"] = "served" if access == "served" else "direct"
    sharers = -(-worker_count // len(gpus)) if gpus else 1
    processes = [
        ProcessSpec(
            role="worker",
            index=index,
            cores=(),
            threads=1,
            gpu=gpus[index % len(gpus)].index if gpus else None,
            gpu_memory_fraction=gpu_memory_fraction / sharers if gpus else 1.0,
        )
        for index in range(worker_count)
    ]
    processes += [ProcessSpec(role="server", index=index, cores=(), threads=1) for index in range(server_count)]
    return Plan(processes=tuple(processes), access=chosen, reason=_reason(worker_count, server_count, cores, chosen))


def _clamp(setting: Count, wish: int) -> int:
    low, high = bounds_of(setting, max(1, wish))
    return max(1, min(max(wish, low), high))


def _reason(workers: int, servers: int, cores: tuple[int, ...], access: str) -> str:
    some = "core" if len(cores) == 1 else "cores"
    first = f"cold start: {workers} worker{'s' * (workers != 1)} on {len(cores)} {some}"
    if workers == len(cores):
        first += ", one each"
    how = "rows in shared memory" if access == "direct" else "rows served over sockets"
    return f"{first}; {servers} PS, {how}; nothing measured yet"
