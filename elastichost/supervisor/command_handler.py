"""Commands from outside: receives and checks them, turns them into plan changes, and replies when these are done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import msgspec

from elastichost.arena.layout import MAX_WORKERS
from elastichost.config.hosts import HostsFile, hosts_of_text
from elastichost.errors import ArenaError, ConfigError, PreflightError, ProtocolError
from elastichost.plan import Plan
from elastichost.runs.events import (
    CommandRefused,
    HostJoinAbandoned,
    HostJoinAsked,
    MemoryBudgetLent,
    PlanOrigin,
    PlanReached,
    ProposalGranted,
    Warned,
)
from elastichost.runs.events.text import text_of
from elastichost.sharding import MAX_SERVERS
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan import SizedPlan
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.core.plan_change import figures_of, gpu_refusal, refusal
from elastichost.supervisor.elastic_hosts.join import HostJoin, join_refusal
from elastichost.supervisor.startup.tuner_settings import configuration_of
from elastichost.supervisor.startup.worker_kinds import why_no_cpu_workers
from elastichost.tuner.facts import Configuration
from elastichost.wire.commands import (
    AcceptedMsg,
    Command,
    CommandServer,
    JoinMsg,
    LendMsg,
    ReachedMsg,
    RefusedMsg,
    ScaleMsg,
    verb_of,
)

__all__ = ["CommandHandler", "refuse_all"]

COMMANDS_PER_TURN = 16
NOTED_REFUSALS = 20  # messages that are no commands are journalled up to this number: a peer could fill the journal


class CommandHandler:
    """Handles the commands to a run that trains. A peer gets its last reply when the change it requested is done."""

    def __init__(self, run: RunContext, components: Components, changes: PlanChangeController) -> None:
        self._run, self._components = run, components
        self._changes, self._plans = changes, changes.plans
        self._peer: bytes | None = None  # the peer that waits for a plan change
        self._awaited = 0  # number of that plan change
        self._refusals = 0
        self._granted: tuple[Plan, Plan] | None = None
        self._joining: HostJoin | None = None  # machines that are joining
        self._join_peer, self._join_cause = b"", ""  # sender and cause of the command that named them

    def turn(self, now_s: float) -> bool:
        """Handles waiting commands. Returns True when machines have joined the run in this turn."""
        if self._changes.number != self._awaited:
            self._answer(RefusedMsg("another plan change replaced this one before it was done"))
        for peer, command in _received(self._run.commands, self._refused):
            self._handle(peer, command, now_s)
        if self._joining is None:
            return False
        with self._run.caused_by(self._join_cause):
            return self._advance_join(self._joining, now_s)

    def reached(self, reached: PlanReached) -> None:
        """The plan change is done: its peer is sent what the change cost."""
        self._answer(ReachedMsg(text_of(reached), figures_of(reached)))

    def close(self, why: str) -> None:
        """The plan will not change any more: a peer that waits is refused with `why`, and machines do not join."""
        self._answer(RefusedMsg(why))
        self._dismiss(why)

    # --- commands -------------------------------------------------------------------------------------------

    def _refused(self, error: ProtocolError) -> None:
        self._refusals += 1
        if self._refusals <= NOTED_REFUSALS:
            self._run.note(CommandRefused("", str(error)))

    def _handle(self, peer: bytes, command: Command, now_s: float) -> None:
        verb = verb_of(command)
        with self._run.caused_by(self._run.new_cause(verb)):
            match command:
                case ScaleMsg():
                    self._scale(peer, command, now_s)
                case LendMsg():
                    self._lend(peer, command, now_s)
                case JoinMsg():
                    self._join(peer, command)
                case _:
                    self._run.commands.reply(
                        peer, RefusedMsg(f"a run does not take the command {verb}", "send it to a dispatcher", True)
                    )

    def _lend(self, peer: bytes, command: LendMsg, now_s: float) -> None:
        """The dispatcher lends other cores or memory. The plan is changed to fit; the last reply follows when it is."""
        if self._changes.why_closed:
            self._run.commands.reply(peer, RefusedMsg(self._changes.why_closed))
            return
        cores = self._plans.cores if command.cores is None else command.cores
        size = ScaleMsg(command.workers, command.servers, command.worker_cores)
        threads = size.worker_cores or max((spec.threads for spec in self._run.plan.workers), default=1)
        size = msgspec.structs.replace(size, worker_cores=min(threads, max(1, len(cores))))
        refused = refusal(size, MAX_WORKERS, MAX_SERVERS, len(cores)) or self._gpu_refusal(size)
        if refused is None and command.is_proposal and not self._proposes(command):
            refused = RefusedMsg("the run's tuner does not propose this size any more")
        if refused is not None:
            self._run.commands.reply(peer, refused)
            return
        if command.memory_bytes is not None:
            self._components.memory.lend(command.memory_bytes)
            self._run.note(MemoryBudgetLent(command.memory_bytes))
            if (command.cores, command.workers, command.servers, command.worker_cores) == (None,) * 4:
                self._run.commands.reply(peer, ReachedMsg("the plan does not change"))
                return
        proposal, self._run.proposal = self._run.proposal, None  # it was made for the size and the cores until now
        self._plans.cores = cores
        does_propose = self._run.job.tuner.mode == "propose"
        self._plans.is_asked = self._plans.is_asked or (command.workers is not None and not does_propose)
        reason = f"the host lends {len(cores)} core{'s' * (len(cores) != 1)}"
        if command.is_proposal and proposal is not None:
            self._run.note(ProposalGranted(proposal.wanted))
            reason = f"the dispatcher granted what the tuner proposed: {proposal.reason}"
        plan, _ = self._plans.resized(size, reason)
        if plan.processes == self._run.plan.processes and not self._changes.is_under_way:
            self._run.commands.reply(peer, ReachedMsg("the plan does not change"))
            return
        if command.is_proposal and proposal is not None:
            self._granted = self._run.plan, plan
            self._apply(plan, peer, now_s, "trial" if proposal.kind == "try" else "")
        else:
            self._apply(plan, peer, now_s, "" if does_propose else "scale")
        self._run.commands.reply(peer, AcceptedMsg(plan.reason))

    def _proposes(self, size: LendMsg) -> bool:
        """Whether the tuner proposes this size, for the plan that the run has now."""
        proposal = self._run.proposal
        if proposal is None or proposal.present != configuration_of(self._run.plan):
            return False
        return proposal.wanted == Configuration(size.workers or 0, size.servers or 0, size.worker_cores or 0)

    def take_granted(self) -> tuple[Plan, Plan] | None:
        """The plans before and after a change to the size that the tuner proposed, if one began since the last call."""
        granted, self._granted = self._granted, None
        return granted

    def _join(self, peer: bytes, command: JoinMsg) -> None:
        """Starts agents on the machines of the command. The plan grows when all of them are ready."""
        run, size = self._run, ScaleMsg(command.workers, command.servers, command.worker_cores)
        try:
            hosts = hosts_of_text(command.hosts)
        except ConfigError as error:
            run.commands.reply(peer, RefusedMsg(str(error), error.hint, True))
            return
        refused = (
            RefusedMsg(self._changes.why_closed)
            if self._changes.why_closed
            else join_refusal(run, hosts, is_joining=self._joining is not None)
        )
        if refused is None and size != ScaleMsg():
            refused = refusal(size, MAX_WORKERS, MAX_SERVERS, sys.maxsize)
        if refused is None:
            refused = self._start_join(hosts, size)
        if refused is not None:
            run.note(CommandRefused("join", refused.message))
            run.commands.reply(peer, refused)
            return
        self._join_peer, self._join_cause = peer, run.cause
        names = ", ".join(host.shown for host in hosts.hosts)
        run.note(HostJoinAsked(tuple(host.shown for host in hosts.hosts)))
        run.commands.reply(peer, AcceptedMsg(f"starting an agent on {names}"))

    def _start_join(self, hosts: HostsFile, size: ScaleMsg) -> RefusedMsg | None:
        """Starts an agent on each host. Returns the refusal if one cannot be started."""
        run, components = self._run, self._components
        assert run.machines is not None
        try:
            self._joining = HostJoin(run, run.machines, components.arena.layout, hosts, size, components.memory.gain)
        except OSError as error:
            return RefusedMsg(f"no host joins: cannot start an agent: {error}", "check that ssh is installed")
        return None

    def _advance_join(self, joining: HostJoin, now_s: float) -> bool:
        """Returns True when all machines are ready now and a larger plan was applied. Machines that this machine cannot
        admit are dismissed: the run trains on without them."""
        all_joined = joining.turn(now_s)
        if joining.reasons:
            self._dismiss("; ".join(joining.reasons))
        if joining.reasons or not all_joined:
            return False
        try:
            joining.admit()
        except (ArenaError, PreflightError) as error:
            self._dismiss(error.message, error.hint)
            return False
        self._joining = None
        plan, warnings = self._plans.resized(self._size_with(joining), f"machines joined: {len(joining.numbers)}")
        for warning in warnings:
            self._run.note(Warned(warning))
        self._apply(plan, self._join_peer, now_s)
        return True

    def _size_with(self, joining: HostJoin) -> ScaleMsg:
        plan, size = self._run.plan, joining.size
        threads = size.worker_cores or max((spec.threads for spec in plan.workers), default=1)
        workers = size.workers or min(MAX_WORKERS, len(plan.workers) + max(1, joining.cores // threads))
        servers = size.servers or min(MAX_SERVERS, len(plan.servers) + len(joining.numbers))
        return ScaleMsg(workers, servers, size.worker_cores)

    def _dismiss(self, why: str, hint: str = "") -> None:
        """Gives up a join that is under way, and refuses its peer. hint: what to do; "": look at the hosts."""
        if self._joining is not None:
            self._joining.dismiss()
            self._joining = None
            self._run.note(HostJoinAbandoned(why))
            hint = hint or "check the hosts with `elastichost doctor`"
            self._run.commands.reply(self._join_peer, RefusedMsg(f"no machine joins: {why}", hint))

    def _gpu_refusal(self, command: ScaleMsg) -> RefusedMsg | None:
        job, gpus = self._run.job, len(self._plans.gpus)
        if not gpus:
            return None
        if job.resources.model_memory == "gpu":
            gpus = min(1, gpus)  # the model is in memory of one
        return gpu_refusal(command, gpus, why_no_cpu_workers(job))

    def _scale(self, peer: bytes, command: ScaleMsg, now_s: float) -> None:
        all_cores = self._run.all_cores(len(self._plans.cores))
        refused = refusal(command, MAX_WORKERS, MAX_SERVERS, all_cores)
        if refused is None:
            refused = self._gpu_refusal(command)
        if self._changes.why_closed:
            refused = RefusedMsg(self._changes.why_closed)
        if refused is not None:
            self._run.note(CommandRefused("scale", refused.message))
            self._run.commands.reply(peer, refused)
            return
        self._plans.is_asked = True
        plan, warnings = self._resized(command)
        if plan.processes == self._run.plan.processes and not self._changes.is_under_way:
            self._run.commands.reply(peer, ReachedMsg("nothing to change: the run already has this plan"))
            return
        for warning in warnings:
            self._run.note(Warned(warning))
        self._apply(plan, peer, now_s, "scale")
        workers = len(plan.workers)
        text = f"new plan: {workers} worker{'s' * (workers != 1)} and {len(plan.servers)} PS"
        self._run.commands.reply(peer, AcceptedMsg("; ".join((text, *warnings))))

    def _resized(self, command: ScaleMsg) -> SizedPlan:
        asked = [f"{name}={value}" for name in command.__struct_fields__ if (value := getattr(command, name))]
        return self._plans.resized(command, f"scale {' '.join(asked)}")

    def _apply(self, plan: Plan, peer: bytes, now_s: float, origin: PlanOrigin = "") -> None:
        """Begins a plan change. The peer gets a reply when the change is done, or when another change replaces it."""
        self._answer(RefusedMsg("another plan change replaced this one before it was done"))
        self._changes.apply(plan, now_s, origin)
        self._peer, self._awaited = peer, self._changes.number

    def _answer(self, reply: ReachedMsg | RefusedMsg) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._run.commands.reply(peer, reply)


def _received(commands: CommandServer, refused: Callable[[ProtocolError], None]) -> Iterator[tuple[bytes, Command]]:
    """Commands that have arrived, at most COMMANDS_PER_TURN. Calls `refused` for a message that is no command."""
    for _ in range(COMMANDS_PER_TURN):
        try:
            received = commands.receive()
        except ProtocolError as error:
            refused(error)
            continue
        if received is None:
            return
        yield received


def refuse_all(commands: CommandServer, why: str) -> None:
    """Refuses the commands that have arrived since the run ended."""
    for peer, _ in _received(commands, lambda _: None):
        commands.reply(peer, RefusedMsg(why))
