"""Which cores each process of a plan is pinned to, and the environment that limits it to its GPU. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import GpuDevice

__all__ = ["PinnedPlan", "capacity_of", "gpu_environment", "pin"]


class PinnedPlan(msgspec.Struct, frozen=True):
    """The plan with the cores of each process, and warnings for the user."""

    plan: Plan
    warnings: tuple[str, ...]


def pin(
    plan: Plan,
    cores: tuple[int, ...],
    elsewhere: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    gpus: Iterable[GpuDevice] = (),
) -> PinnedPlan:
    """Assigns cores to every process of a plan. cores: of this machine. elsewhere: host number -> cores, for each other
    machine. gpus: of this machine; a worker with a GPU gets cores near it first."""
    here = tuple(spec for spec in plan.processes if spec.host not in elsewhere)
    near = {gpu.index: gpu.near_cores for gpu in gpus}
    pinned = _pin(msgspec.structs.replace(plan, processes=here), cores, near)
    processes, warnings = pinned.plan.processes, pinned.warnings
    for host, there in sorted(elsewhere.items()):
        of_host = tuple(spec for spec in plan.processes if spec.host == host)
        found = _pin(msgspec.structs.replace(plan, processes=of_host), there, {})
        processes += found.plan.processes
        warnings += tuple(f"host {host}: {warning}" for warning in found.warnings)
    return PinnedPlan(msgspec.structs.replace(pinned.plan, processes=processes), warnings)


def _pin(plan: Plan, cores: tuple[int, ...], near: Mapping[int, tuple[int, ...]]) -> PinnedPlan:
    """Pins the processes of one host. near: GPU -> cores near it.

    Each worker gets as many cores of its own as it has threads. The spare cores are divided evenly among the workers;
    if there are fewer spare cores than workers, all workers share them. So the reader threads of a worker need not run
    on its training core while another core is idle. PS share the spare cores. With direct access a PS has little work:
    when no core is spare, it may run on every core. Workers with a GPU choose before CPU workers, and take the cores of
    the GPU's part of the host (NUMA) while there are any: these reach the GPU and its memory without a second bus.

    With more worker threads than cores no process is pinned, because the kernel's scheduler divides the cores better
    than a fixed assignment of two workers to one core.
    """
    wanted = sum(spec.threads for spec in plan.workers)
    if wanted > len(cores):
        floating = tuple(msgspec.structs.replace(spec, cores=cores) for spec in plan.processes)
        several = f"{wanted} worker threads share {len(cores)} cores; more threads than cores rarely make a job faster"
        return PinnedPlan(msgspec.structs.replace(plan, processes=floating), (several,))
    each = (len(cores) - wanted) // max(1, len(plan.workers))
    free, own = list(cores), dict[int, tuple[int, ...]]()
    choosing = sorted(plan.workers, key=lambda spec: spec.gpu is None)  # stable: otherwise in the order of the plan
    for spec in choosing:
        own[spec.index] = _taken(free, spec.threads, spec, near)
    spare = tuple(free)
    more = {spec.index: _taken(free, each, spec, near) if each else spare for spec in choosing}
    pinned = [msgspec.structs.replace(spec, cores=own[spec.index] + more[spec.index]) for spec in plan.workers]
    pinned += [msgspec.structs.replace(spec, cores=spare or cores) for spec in plan.servers]
    pinned += [msgspec.structs.replace(s, cores=cores) for s in plan.processes if s.role == "probe"]
    return PinnedPlan(msgspec.structs.replace(plan, processes=tuple(pinned)), ())


def _taken(free: list[int], count: int, spec: ProcessSpec, near: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Takes `count` cores out of `free`, in its order, but those near the GPU of the worker first."""
    close = set(near.get(spec.gpu, ()) if spec.gpu is not None else ())
    taken = sorted(free, key=lambda core: core not in close)[:count]
    for core in taken:
        free.remove(core)
    return tuple(taken)


def capacity_of(cores_here: int, elsewhere: Mapping[int, tuple[int, ...]], hosts: int) -> tuple[int, ...]:
    """Number of cores of each host; 0 for a host that is not in use. elsewhere: host number -> cores, without host 0.
    hosts: number of hosts, those not in use included."""
    return (cores_here, *(len(elsewhere.get(host, ())) for host in range(1, hosts)))


def gpu_environment(spec: ProcessSpec, gpus: Iterable[GpuDevice] = ()) -> dict[str, str]:
    """Environment in which CUDA sees the GPU of this process and no other one, so that the process cannot use memory of
    another GPU. gpus: of the job. The GPU is named by its UUID where it is known: CUDA may number GPUs in another order
    than NVML."""
    names = {gpu.index: gpu.uuid or str(gpu.index) for gpu in gpus}
    visible = "" if spec.gpu is None else names.get(spec.gpu, str(spec.gpu))
    # The fork server has initialized NVML, which does not work after a fork: torch must ask the CUDA driver instead.
    return {"CUDA_VISIBLE_DEVICES": visible, "PYTORCH_NVML_BASED_CUDA_CHECK": "0"}
