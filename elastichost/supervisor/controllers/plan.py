"""The plan of a run: the only module that writes it, and where a new size becomes a pinned plan.

A plan is decided elsewhere: by a person (`command_handler`), by the tuner (`autoscale`), to save memory (`memory`),
because a host is lost, or because the run stops. Here it takes effect: `reconcile` compares the processes with it in
the same turn. What a change costs while the run trains is measured by `plan_change`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from elastichost.plan import Plan, ProcessSpec
from elastichost.runs.events import PlanChanged, PlanOrigin
from elastichost.supervisor.context import Run
from elastichost.supervisor.core.core_assignment import pin
from elastichost.tuner.placement.resize import resized_plan
from elastichost.wire.commands import ScaleMsg

__all__ = ["PlanController", "SizedPlan", "plan_without_lost_hosts"]


class SizedPlan(NamedTuple):
    """A plan in another size, pinned. warnings: what pinning could not do as it was asked, in words."""

    plan: Plan
    warnings: tuple[str, ...]


class PlanController:
    """Writes `Run.plan`, and the event that says why.

    cores: of this host, that the job may use; gpus: their numbers. is_asked: a person has chosen a size, so the tuner
    leaves it alone.
    """

    def __init__(self, run: Run, cores: tuple[int, ...], gpus: tuple[int, ...], *, is_asked: bool) -> None:
        self._run = run
        self.cores, self.gpus, self.is_asked = cores, gpus, is_asked

    # --- a plan in another size ---------------------------------------------------------------------------------------

    def resized(self, size: ScaleMsg, reason: str) -> SizedPlan:
        """The run's plan in this size, pinned to cores; None in `size` keeps a number as it is. Changes nothing."""
        run = self._run
        resized = resized_plan(
            run.plan,
            reason,
            workers=size.workers,
            servers=size.servers,
            worker_cores=size.worker_cores,
            gpus=self.gpus,
            hosts=run.hosts,
            capacity=run.capacity(len(self.cores)),
        )
        return SizedPlan(*self._pinned(resized))

    def without_lost_hosts(self, reason: str) -> Plan:
        """The run's plan without the processes of hosts that the run uses no more, pinned. Changes nothing."""
        plan, _ = self._pinned(plan_without_lost_hosts(self._run.plan, self._run))
        return msgspec.structs.replace(plan, reason=reason)

    def _pinned(self, plan: Plan) -> tuple[Plan, tuple[str, ...]]:
        pinned = pin(plan, self.cores, self._run.cores_elsewhere)
        return pinned.plan, pinned.warnings

    # --- a plan takes effect ------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """One process that builds the user's model and says what it consists of."""
        probe = ProcessSpec(role="probe", index=0, cores=self.cores, threads=1)
        self._run.plan = Plan((probe,), self._run.plan.access, "the model must be known first")

    def begin(self, plan: Plan) -> None:
        """The first plan that trains."""
        self._run.plan = plan
        self._decided(plan.reason, "scale" if self.is_asked else "start", self._run.new_cause("start"))

    def apply(self, plan: Plan, origin: PlanOrigin = "") -> None:
        """A plan that is pinned takes the place of the one before."""
        self._run.plan = plan
        self._decided(plan.reason, origin)

    def needs_servers(self, servers: int, reason: str) -> None:
        """As many PS as the arena that is taken over was made for."""
        resized = resized_plan(self._run.plan, reason, servers=servers)
        plan, _ = self._pinned(resized)
        self.apply(plan)

    def drain(self, servers: tuple[ProcessSpec, ...], reason: str) -> None:
        """The run was asked to stop. Workers drain; the PS there are stay for the last checkpoint."""
        self._run.plan = Plan(servers, self._run.plan.access, reason)
        self._decided(f"{reason}; workers drain, then a checkpoint", cause=self._run.new_cause("stop"))

    def end(self, reason: str) -> None:
        """No process is wanted any more."""
        self._run.plan = Plan((), self._run.plan.access, reason)

    def give_up_hosts(self, reason: str) -> None:
        """Sync mode: the run goes back to a checkpoint, without the hosts that are lost."""
        self._run.plan = self.without_lost_hosts(reason)

    def begin_again(self, plan: Plan, *, is_host_lost: bool) -> None:
        """After a roll back, with what of this plan is on hosts that are left."""
        run = self._run
        left = plan_without_lost_hosts(plan, run)
        run.plan = self._pinned(left)[0] if run.machines is not None else left
        if is_host_lost:
            self._decided(run.plan.reason)

    def _decided(self, reason: str, origin: PlanOrigin = "", cause: str | None = None) -> None:
        """origin: for a resume. cause: of this, and of what follows from the plan later; None: that of what is being
        handled."""
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


def plan_without_lost_hosts(plan: Plan, run: Run) -> Plan:
    """The plan without what is on hosts that the run uses no more; with one worker on host 0 if all were there."""
    left = tuple(spec for spec in plan.processes if run.uses(spec.host))
    if plan.workers and not any(spec.role == "worker" for spec in left):
        one = min(plan.workers, key=lambda spec: spec.index)
        left = (msgspec.structs.replace(one, host=0, cores=(), gpu=None), *left)
    return msgspec.structs.replace(plan, processes=left)
