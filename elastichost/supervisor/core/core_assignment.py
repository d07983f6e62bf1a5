"""Which cores each process of a plan is pinned to, and the environment that limits it to its GPU. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from elastichost.plan import Plan, ProcessSpec

__all__ = ["PinnedPlan", "capacity_of", "gpu_environment", "pin"]


class PinnedPlan(msgspec.Struct, frozen=True):
    """The plan with the cores of each process, and warnings for the user."""

    plan: Plan
    warnings: tuple[str, ...]


def pin(
    plan: Plan, cores: tuple[int, ...], elsewhere: Mapping[int, tuple[int, ...]] = MappingProxyType({})
) -> PinnedPlan:
    """Assigns cores to every process of a plan. cores: of this machine. elsewhere: host number -> cores, for each other
    machine."""
    here = tuple(spec for spec in plan.processes if spec.host not in elsewhere)
    pinned = _pin(msgspec.structs.replace(plan, processes=here), cores)
    processes, warnings = pinned.plan.processes, pinned.warnings
    for host, there in sorted(elsewhere.items()):
        of_host = tuple(spec for spec in plan.processes if spec.host == host)
        found = _pin(msgspec.structs.replace(plan, processes=of_host), there)
        processes += found.plan.processes
        warnings += tuple(f"host {host}: {warning}" for warning in found.warnings)
    return PinnedPlan(msgspec.structs.replace(pinned.plan, processes=processes), warnings)


def _pin(plan: Plan, cores: tuple[int, ...]) -> PinnedPlan:
    """Pins the processes of one host.

    Each worker gets as many cores of its own as it has threads. The spare cores are divided evenly among the workers;
    if there are fewer spare cores than workers, all workers share them. So the reader threads of a worker need not run
    on its training core while another core is idle. PS share the spare cores. With direct access a PS has little work:
    when no core is spare, it may run on every core.

    With more worker threads than cores no process is pinned, because the kernel's scheduler divides the cores better
    than a fixed assignment of two workers to one core.
    """
    wanted = sum(spec.threads for spec in plan.workers)
    if wanted > len(cores):
        floating = tuple(msgspec.structs.replace(spec, cores=cores) for spec in plan.processes)
        several = f"{wanted} worker threads share {len(cores)} cores; more threads than cores rarely make a job faster"
        return PinnedPlan(msgspec.structs.replace(plan, processes=floating), (several,))
    own, spare = cores[:wanted], cores[wanted:]
    each = len(spare) // max(1, len(plan.workers))
    pinned: list[ProcessSpec] = []
    for number, spec in enumerate(plan.workers):
        mine, own = own[: spec.threads], own[spec.threads :]
        more = spare[number * each : (number + 1) * each] if each else spare
        pinned.append(msgspec.structs.replace(spec, cores=(*mine, *more)))
    pinned += [msgspec.structs.replace(spec, cores=spare or cores) for spec in plan.servers]
    pinned += [msgspec.structs.replace(s, cores=cores) for s in plan.processes if s.role == "probe"]
    return PinnedPlan(msgspec.structs.replace(plan, processes=tuple(pinned)), ())


def capacity_of(cores_here: int, elsewhere: Mapping[int, tuple[int, ...]], hosts: int) -> tuple[int, ...]:
    """Number of cores of each host; 0 for a host that is not in use. elsewhere: host number -> cores, without host 0.
    hosts: number of hosts, those not in use included."""
    return (cores_here, *(len(elsewhere.get(host, ())) for host in range(1, hosts)))


def gpu_environment(spec: ProcessSpec) -> dict[str, str]:
    """Environment in which CUDA sees the GPU of this process and no other one, so that the process cannot use memory of
    another GPU."""
    # The fork server has initialized NVML, which does not work after a fork: torch must ask the CUDA driver instead.
    return {"CUDA_VISIBLE_DEVICES": "" if spec.gpu is None else str(spec.gpu), "PYTORCH_NVML_BASED_CUDA_CHECK": "0"}
