"""Which cores each process of a plan is pinned to, and what its environment says of GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from elastichost.plan import Plan, ProcessSpec

__all__ = ["PinnedPlan", "capacity_of", "gpu_environment", "pin"]


class PinnedPlan(msgspec.Struct, frozen=True):
    """The plan with cores filled in; `warnings` in words."""

    plan: Plan
    warnings: tuple[str, ...]


def pin(
    plan: Plan, cores: tuple[int, ...], elsewhere: Mapping[int, tuple[int, ...]] = MappingProxyType({})
) -> PinnedPlan:
    """cores: of this machine. elsewhere: those of other machines, by their hosts."""
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
    """Workers get whole cores of the job's, as many as they have threads, and what is spare besides: evenly, or all
    of it together when there is less than one each. So a worker's reading ahead does not take turns with its training
    on one core while another stands idle. PS share the spare cores.

    With direct access a PS has little to do: when no core is left it floats over all of them. With more workers
    than cores nobody is pinned: the kernel shares out better than a fixed assignment of two to one core.
    """
    wanted = sum(spec.threads for spec in plan.workers)
    if wanted > len(cores):
        floating = tuple(msgspec.structs.replace(spec, cores=cores) for spec in plan.processes)
        several = f"{wanted} worker threads share {len(cores)} cores: more threads than cores rarely make a job faster"
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
    """Cores of each of so many hosts, 0 of one that is not used (any more). elsewhere: cores of the others, by host."""
    return (cores_here, *(len(elsewhere.get(host, ())) for host in range(1, hosts)))


def gpu_environment(spec: ProcessSpec) -> dict[str, str]:
    """CUDA sees exactly the GPU that was given to the process, or none: nobody takes memory that is not its own."""
    # Forked, the process has lost NVML, which its fork server asked for GPUs: it is to ask the driver itself.
    return {"CUDA_VISIBLE_DEVICES": "" if spec.gpu is None else str(spec.gpu), "PYTORCH_NVML_BASED_CUDA_CHECK": "0"}
