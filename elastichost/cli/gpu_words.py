"""Says which process of a plan has which GPU, and which workers train on the CPU. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elastichost.human_readable import bytes_words, plural
from elastichost.plan import Plan
from elastichost.resources import GpuDevice, core_list

__all__ = ["gpu_words"]


def gpu_words(plan: Plan, gpus: Iterable[GpuDevice]) -> Iterator[str]:
    """One line for each GPU of the job, and one for the workers without a GPU. gpus: of the job."""
    workers = {spec.gpu: spec for spec in plan.workers if spec.gpu is not None}
    for gpu in gpus:
        device = f"GPU {gpu.index}: {gpu.name}, {bytes_words(gpu.total_bytes or gpu.memory_bytes)}"
        spec = workers.get(gpu.index)
        if spec is None:
            yield f"{device}; no worker"
            continue
        near = sorted(set(spec.cores) & set(gpu.near_cores))
        place = f", {len(near)} of {plural(len(spec.cores), 'core')} near it" if gpu.near_cores and spec.cores else ""
        yield f"{device}; worker {spec.index} may use {spec.gpu_memory_fraction:.0%} of its memory{place}"
    on_cpu = [spec.index for spec in plan.workers if spec.gpu is None]
    if on_cpu:
        yield f"CPU: worker{'s' * (len(on_cpu) > 1)} {core_list(on_cpu)}"
