"""The first phase of a run: the probe builds the user's model once, and describes its tables and its dense part."""

from __future__ import annotations

from elastichost.errors import HostLostError
from elastichost.host.kernel_cache import COMPILE_S, kernel_cache
from elastichost.host.stop_signals import StopSignals
from elastichost.runs import events
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan import PlanController
from elastichost.supervisor.controllers.processes import Holdings, ProcessController
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.elastic_hosts.join import keep_hosts
from elastichost.supervisor.event_loop import TICK_S, EventLoop
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.message_router import Described, ProbeRouter
from elastichost.supervisor.phases.disk_watch import look_at_space
from elastichost.supervisor.status import Reporter
from elastichost.wire.commands import CommandServer

__all__ = ["DescriptionPhase", "host_lost_error"]


class DescriptionPhase:
    """The plan has one process, the probe. There is no arena and no ledger yet."""

    state = "starting"
    components: Components | None = None

    def __init__(self, run: RunContext, plans: PlanController, loop: EventLoop, reporter: Reporter) -> None:
        self._run, self._plans, self._loop, self._reporter = run, plans, loop, reporter
        self.processes = ProcessController(run, _nobody_is_concerned, Holdings, self._host_lost)
        self.router = ProbeRouter(run, self.processes)

    def run(self, signals: StopSignals) -> Described | None:
        """Returns the description of the model; None: the run was asked to stop first."""
        if self._loop.compiles_kernels and not kernel_cache().problem:
            self._run.note(events.KernelsMissing(COMPILE_S))
        self._plans.probe()
        while self.router.described is None:
            self._loop.turn(self)
            if signals.count:
                return None
        return self.router.described

    def tick_s(self, now_s: float) -> float:
        """Always TICK_S: nothing is measured in this phase."""
        return TICK_S

    def commands(self) -> CommandServer | None:
        """None: commands are taken when the job trains."""
        return None

    def before_reconcile(self, now_s: float) -> None:
        """Does nothing: the plan does not change."""

    def after_reconcile(self, now_s: float) -> None:
        """Checks only for full disks."""
        look_at_space(self._run, self._reporter.problems, None, None)

    def _host_lost(self, event: AgentLost) -> None:
        keep_hosts(self._run)
        raise host_lost_error(event)


def _nobody_is_concerned(record: ProcessRecord, *, asked: bool) -> None:
    """Does nothing: the probe holds neither leases nor buckets."""


def host_lost_error(event: AgentLost) -> HostLostError:
    """The error of a run that cannot continue without this host."""
    return HostLostError(
        f"host {event.name} is lost: {event.reason}",
        hint="continue from the newest checkpoint with `elastichost resume`; it has the rows of this host",
    )
