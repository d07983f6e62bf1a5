"""The only module that writes the plan of a run, and where a new size becomes a plan with pinned cores.

Others decide on a plan: the user (`command_handler`), the tuner (`autoscale`), the memory monitor (`memory`), the loss
of a host, the end of the run. Here it takes effect: `reconcile` compares the processes with it in the same turn.
`plan_change` measures what a change costs while the run trains.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import GpuDevice
from elastichost.runs.events import PlanChanged, PlanOrigin
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.core_assignment import pin
from elastichost.tuner.placement.gpu_workers import plan_without_gpus
from elastichost.tuner.placement.resize import resized_plan
from elastichost.wire.commands import ScaleMsg

__all__ = ["PlanController", "SizedPlan", "plan_without_lost_hosts"]


class SizedPlan(NamedTuple):
    """A plan in another size, pinned to cores. warnings: texts for the user, such as too few cores."""

    plan: Plan
    warnings: tuple[str, ...]


class PlanController:
    """Writes `Run.plan`, and the event with the reason.

    cores: the cores of this host that the job may use. gpus: its GPUs, without lost ones. is_asked: the user has chosen
    a size, so the tuner does not change it.
    """

    def __init__(self, run: RunContext, cores: tuple[int, ...], gpus: tuple[GpuDevice, ...], *, is_asked: bool) -> None:
        self._run = run
        self.cores, self.gpus, self.is_asked = cores, gpus, is_asked

    # --- a plan in another size ---------------------------------------------------------------------------------------

    def resized(self, size: ScaleMsg, reason: str) -> SizedPlan:
        """Returns the run's plan in this size, pinned to cores. A field of `size` that is None keeps its number."""
        run = self._run
        resized = resized_plan(
            run.plan,
            reason,
            workers=size.workers,
            servers=size.servers,
            worker_cores=size.worker_cores,
            gpus=tuple(gpu.index for gpu in self.gpus),
            hosts=run.hosts,
            capacity=run.capacity(len(self.cores)),
        )
        return SizedPlan(*self._pinned(resized))

    def without_lost_hosts(self, reason: str) -> Plan:
        """Returns the run's plan without processes of lost hosts, pinned to cores."""
        plan, _ = self._pinned(plan_without_lost_hosts(self._run.plan, self._run))
        return msgspec.structs.replace(plan, reason=reason)

    def without_gpus(self, lost: Collection[int], reason: str) -> Plan:
        """Gives GPUs up, and returns the run's plan without their workers, pinned to cores."""
        self.gpus = tuple(gpu for gpu in self.gpus if gpu.index not in lost)
        left = tuple(gpu.index for gpu in self.gpus)
        plan, _ = self._pinned(plan_without_gpus(self._run.plan, lost, left, reason))
        return plan

    def _pinned(self, plan: Plan) -> tuple[Plan, tuple[str, ...]]:
        pinned = pin(plan, self.cores, self._run.cores_elsewhere, self.gpus)
        return pinned.plan, pinned.warnings

    # --- a plan takes effect ------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """The plan of the first phase: the probe alone, which describes the user's model."""
        probe = ProcessSpec(role="probe", index=0, cores=self.cores, threads=1)
        self._run.plan = Plan((probe,), self._run.plan.access, "the probe has to describe the model first")

    def begin(self, plan: Plan) -> None:
        """Applies the first plan with workers."""
        self._run.plan = plan
        self._decided(plan.reason, "scale" if self.is_asked else "start", self._run.new_cause("start"))

    def apply(self, plan: Plan, origin: PlanOrigin = "") -> None:
        """Replaces the plan. `plan` is pinned to cores."""
        self._run.plan = plan
        self._decided(plan.reason, origin)

    def needs_servers(self, servers: int, reason: str) -> None:
        """Changes the number of PS to the one that the arena to take over was made with."""
        resized = resized_plan(self._run.plan, reason, servers=servers)
        plan, _ = self._pinned(resized)
        self.apply(plan)

    def drain(self, servers: tuple[ProcessSpec, ...], reason: str) -> None:
        """The run was asked to stop: workers drain, and the present PS stay for the final checkpoint."""
        self._run.plan = Plan(servers, self._run.plan.access, reason)
        then = "workers drain, then a checkpoint is taken; Ctrl-C ends the run without it"
        self._decided(f"{reason}; {then}", cause=self._run.new_cause("stop"))

    def end(self, reason: str) -> None:
        """An empty plan: all processes stop."""
        self._run.plan = Plan((), self._run.plan.access, reason)

    def give_up_hosts(self, reason: str) -> None:
        """Sync mode: removes the processes of lost hosts from the plan; a roll-back follows."""
        self._run.plan = self.without_lost_hosts(reason)

    def begin_again(self, plan: Plan, *, is_host_lost: bool) -> None:
        """After a roll-back: applies this plan without processes of lost hosts."""
        run = self._run
        left = plan_without_lost_hosts(plan, run)
        run.plan = self._pinned(left)[0] if run.machines is not None else left
        if is_host_lost:
            self._decided(run.plan.reason)

    def _decided(self, reason: str, origin: PlanOrigin = "", cause: str | None = None) -> None:
        """Journals a new plan. origin: how the size was chosen, for a resumed run. cause: of this event and of the
        events that the plan leads to; None: the present `Run.cause`."""
        run = self._run
        run.last_decision, plan, run.plan_cause = reason, run.plan, run.cause if cause is None else cause
        if plan.workers:
            run.size = len(plan.workers), len(plan.servers)
        run.note(
            PlanChanged(
                workers=len(plan.workers),
                servers=len(plan.servers),
                worker_cores=max((spec.threads for spec in plan.workers), default=0),
                processes=tuple(f"{spec.role}-{spec.index}" for spec in plan.processes),
                access=plan.access,
                reason=reason,
                origin=origin,
            ),
            run.plan_cause,
        )


def plan_without_lost_hosts(plan: Plan, run: RunContext) -> Plan:
    """The plan without processes of lost hosts. If no worker is left, one of them goes to host 0."""
    left = tuple(spec for spec in plan.processes if run.uses(spec.host))
    if plan.workers and not any(spec.role == "worker" for spec in left):
        one = min(plan.workers, key=lambda spec: spec.index)
        left = (msgspec.structs.replace(one, host=0, cores=(), gpu=None), *left)
    return msgspec.structs.replace(plan, processes=left)
