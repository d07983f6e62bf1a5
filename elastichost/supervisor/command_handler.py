"""Commands from outside: taken, checked, made a plan, watched until they are done, answered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import msgspec

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.layout import MAX_WORKERS
from elastichost.arena.watermarks import Watermarks
from elastichost.config.hosts import hosts_of_text
from elastichost.errors import ConfigError, ProtocolError
from elastichost.micro_batches import step_of
from elastichost.plan import Plan
from elastichost.runs.events import (
    CommandRefused,
    Counts,
    HostJoinAbandoned,
    HostJoinAsked,
    MemoryBudgetLent,
    PlanOrigin,
    Warned,
)
from elastichost.runs.events.text import text_of
from elastichost.sharding import MAX_SERVERS
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.core.core_assignment import pin
from elastichost.supervisor.core.plan_change import Dip, Pace, PlanChangeWatch, figures_of, gpu_refusal, refusal
from elastichost.supervisor.elastic_hosts.join import HostJoin, join_refusal
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.tuner.placement.gpu_shares import most_sharing
from elastichost.tuner.placement.resize import resized_plan
from elastichost.wire.commands import (
    AcceptedMsg,
    Command,
    CommandServer,
    JoinMsg,
    LendMsg,
    ReachedMsg,
    RefusedMsg,
    ScaleMsg,
)

__all__ = ["CommandHandler", "refuse_all"]

COMMANDS_PER_TURN = 16
SAMPLE_S = 0.02  # the throughput is looked at so often while nothing changes
SHORT_TURNS_S = 10.0  # and as often as can be for so long when something does
NOTED_REFUSALS = 20  # what is no command is noted so often, or a peer could fill the journal


class CommandHandler:
    """Makes a new size the run's plan. prepared: with the cores and GPUs of the job."""

    def __init__(self, run: Run, parts: Components, prepared: Preparation) -> None:
        self._run, self._parts, self._cores = run, parts, prepared.cores
        self._gpus = tuple(gpu.index for gpu in prepared.beginning.request.gpus)
        self._dense, self._watermarks = DenseStore(parts.arena), Watermarks(parts.arena.directory)
        self._pace = Pace()
        self._sampled_s = 0.0
        self._watch: PlanChangeWatch | None = None
        self._peers: list[bytes] = []  # who waits for the end of the change
        self._refusals = 0
        self.why_not = ""  # a reason to refuse everything: the run is stopping
        self.was_asked = False  # somebody has chosen a size: it is his to change
        self._guests: HostJoin | None = None  # machines that are to join
        self._hosting, self._hosting_cause = b"", ""  # the command that asked for them
        self._hosts_changed = False
        self._moved_s: float | None = None  # training lost by the change that was over last

    def wants_short_turns(self, now_s: float) -> bool:
        """A change is under way: its moments are to be seen as they are."""
        return self._watch is not None and now_s - self._watch.dip.began_s < SHORT_TURNS_S

    @property
    def is_settled(self) -> bool:
        """No change is under way, and what the plan wants runs where it wants it."""
        return self._watch is None and not self.why_not and self._is_reached()

    def take_moved_s(self) -> float | None:
        """Seconds of training that the last change lost; None: none was over since the last call."""
        moved_s, self._moved_s = self._moved_s, None
        return moved_s

    def take_hosts_changed(self) -> bool:
        """Whether machines have joined since the last call."""
        changed, self._hosts_changed = self._hosts_changed, False
        return changed

    def turn(self, now_s: float) -> None:
        """Takes commands and looks how far the last one is."""
        if self._watch is not None or now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            self._pace.add(now_s, self._dense.samples_applied())
        moves = self._parts.roster.take_moves()
        if self._watch is not None:
            self._watch.hand_overs += moves
        for peer, command in _received(self._run.commands, self._refused):
            self._handle(peer, command, now_s)
        if self._guests is not None:
            self._look_at_guests(self._guests, now_s)
        if self._watch is not None:
            self._observe(self._watch, now_s)

    def end(self, why: str) -> None:
        """Nobody waits in vain: the plan will not be reached any more."""
        self._watch = None
        self.why_not = why
        self._answer(RefusedMsg(why))
        self._dismiss(why)

    # --- commands -------------------------------------------------------------------------------------------

    def _refused(self, error: ProtocolError) -> None:
        self._refusals += 1
        if self._refusals <= NOTED_REFUSALS:
            self._run.note(CommandRefused("", str(error)))

    def _handle(self, peer: bytes, command: Command, now_s: float) -> None:
        name = type(command).__name__
        with self._run.caused_by(self._run.new_cause(name.lower())):
            match command:
                case ScaleMsg():
                    self._scale(peer, command, now_s)
                case LendMsg():
                    self._lend(peer, command, now_s)
                case JoinMsg():
                    self._join(peer, command)
                case _:
                    self._run.commands.reply(
                        peer, RefusedMsg(f"{name} is nothing for a run", "a host takes that", True)
                    )

    def _lend(self, peer: bytes, command: LendMsg, now_s: float) -> None:
        """Another part of the host: what does not fit in it any more makes room, and who asked knows when it has."""
        if self.why_not:
            self._run.commands.reply(peer, RefusedMsg(self.why_not))
            return
        cores = self._cores if command.cores is None else command.cores
        size = ScaleMsg(command.workers, command.servers, command.worker_cores)
        threads = size.worker_cores or max((spec.threads for spec in self._run.plan.workers), default=1)
        size = msgspec.structs.replace(size, worker_cores=min(threads, max(1, len(cores))))
        refused = refusal(size, MAX_WORKERS, MAX_SERVERS, len(cores))
        if refused is not None:
            self._run.commands.reply(peer, refused)
            return
        if command.memory_bytes is not None:
            self._parts.memory.lend(command.memory_bytes)
            self._run.note(MemoryBudgetLent(command.memory_bytes))
        self._cores = cores
        self.was_asked = self.was_asked or command.workers is not None
        plan, _ = self.resized(size, f"the host lends {len(cores)} core{'s' * (len(cores) != 1)}")
        if plan.processes == self._run.plan.processes and self._watch is None:
            self._run.commands.reply(peer, ReachedMsg("as it was"))
            return
        self.follow(plan, now_s, "scale")
        self._peers = [peer]
        self._run.commands.reply(peer, AcceptedMsg(plan.reason))

    def _join(self, peer: bytes, command: JoinMsg) -> None:
        """Its machines are called; the plan becomes larger when all of them are there."""
        run, size = self._run, ScaleMsg(command.workers, command.servers, command.worker_cores)
        try:
            hosts = hosts_of_text(command.hosts)
        except ConfigError as error:
            run.commands.reply(peer, RefusedMsg(str(error), error.hint, True))
            return
        refused = (
            RefusedMsg(self.why_not) if self.why_not else join_refusal(run, hosts, is_joining=self._guests is not None)
        )
        if refused is None and size != ScaleMsg():
            refused = refusal(size, MAX_WORKERS, MAX_SERVERS, sys.maxsize)
        if refused is not None:
            run.note(CommandRefused("join", refused.message))
            run.commands.reply(peer, refused)
            return
        assert run.machines is not None
        self._guests = HostJoin(run, run.machines, self._parts.arena.layout, hosts, size, self._parts.memory.gain)
        self._hosting, self._hosting_cause = peer, run.cause
        names = ", ".join(host.shown for host in hosts.hosts)
        run.note(HostJoinAsked(tuple(host.shown for host in hosts.hosts)))
        run.commands.reply(peer, AcceptedMsg(f"{names} {'is' if len(hosts.hosts) == 1 else 'are'} called"))

    def _look_at_guests(self, guests: HostJoin, now_s: float) -> None:
        with self._run.caused_by(self._hosting_cause):
            self._take_guests(guests, now_s)

    def _take_guests(self, guests: HostJoin, now_s: float) -> None:
        all_joined = guests.turn(now_s)
        if guests.reasons:
            self._dismiss("; ".join(guests.reasons))
        elif all_joined:
            self._guests = None
            guests.admit()
            self._hosts_changed = True
            plan, warnings = self.resized(self._with_guests(guests), f"{len(guests.numbers)} more machines")
            for warning in warnings:
                self._run.note(Warned(warning))
            self.follow(plan, now_s)
            self._peers = [self._hosting]

    def _with_guests(self, guests: HostJoin) -> ScaleMsg:
        plan, size = self._run.plan, guests.size
        threads = size.worker_cores or max((spec.threads for spec in plan.workers), default=1)
        workers = size.workers or min(MAX_WORKERS, len(plan.workers) + max(1, guests.cores // threads))
        servers = size.servers or min(MAX_SERVERS, len(plan.servers) + len(guests.numbers))
        return ScaleMsg(workers, servers, size.worker_cores)

    def _dismiss(self, why: str) -> None:
        """Nobody joins."""
        if self._guests is not None:
            self._guests.dismiss()
            self._guests = None
            self._run.note(HostJoinAbandoned(why))
            self._run.commands.reply(
                self._hosting, RefusedMsg(f"nobody joins: {why}", "`elastichost doctor` checks the same hosts")
            )

    def _scale(self, peer: bytes, command: ScaleMsg, now_s: float) -> None:
        all_cores = self._run.all_cores(len(self._cores))
        refused = refusal(command, MAX_WORKERS, MAX_SERVERS, all_cores)
        if refused is None and self._gpus:
            refused = gpu_refusal(command, most_sharing(self._run.job.resources.workers, len(self._cores)))
        if self.why_not:
            refused = RefusedMsg(self.why_not)
        if refused is not None:
            self._run.note(CommandRefused("scale", refused.message))
            self._run.commands.reply(peer, refused)
            return
        self.was_asked = True
        plan, warnings = self._plan(command)
        if plan.processes == self._run.plan.processes and self._watch is None:
            self._run.commands.reply(peer, ReachedMsg("nothing to change: the plan is this one already"))
            return
        for warning in warnings:
            self._run.note(Warned(warning))
        self.follow(plan, now_s, "scale")
        self._peers = [peer]
        workers = len(plan.workers)
        text = f"{workers} worker{'s' * (workers != 1)} and {len(plan.servers)} PS are wanted"
        self._run.commands.reply(peer, AcceptedMsg("; ".join((text, *warnings))))

    def _plan(self, command: ScaleMsg) -> tuple[Plan, tuple[str, ...]]:
        asked = [f"{name}={value}" for name in command.__struct_fields__ if (value := getattr(command, name))]
        return self.resized(command, f"asked for {', '.join(asked)}")

    def resized(self, command: ScaleMsg, reason: str) -> tuple[Plan, tuple[str, ...]]:
        """The run's plan in this size, pinned, and warnings."""
        resized = resized_plan(
            self._run.plan,
            reason,
            workers=command.workers,
            servers=command.servers,
            worker_cores=command.worker_cores,
            gpus=self._gpus,
            hosts=self._run.hosts,
            capacity=self._run.capacity(len(self._cores)),
        )
        pinned = pin(resized, self._cores, self._run.cores_elsewhere)
        return pinned.plan, pinned.warnings

    def follow(self, plan: Plan, now_s: float, origin: PlanOrigin = "") -> None:
        """Makes a plan, from wherever it comes, the run's, and watches what that does. It has workers and PS, and is
        pinned. Whoever waits for the one before is told."""
        self._answer(RefusedMsg("another command took its place before it was done"))
        before, self._run.plan = self._run.plan, plan
        self._run.decided(plan.reason, origin)
        known = {spec.index for spec in before.workers}
        newcomers = {spec.index: self._last_incarnation(spec.index) for spec in plan.workers if spec.index not in known}
        dip = Dip(now_s, self._dense.samples_applied(), self._pace.before())
        self._watch = PlanChangeWatch(Counts.of(before), Counts.of(plan), newcomers, dip, self._run.plan_cause)

    def _last_incarnation(self, worker: int) -> int:
        record = self._run.fleet.named("worker", worker)
        return record.process.incarnation if record is not None else 0

    # --- how far it is --------------------------------------------------------------------------------------

    def _observe(self, watch: PlanChangeWatch, now_s: float) -> None:
        trained = [index for index in watch.awaited if self._has_trained(index, watch.newcomers[index])]
        watch.observe(now_s, self._dense.samples_applied(), trained, is_reached=self._is_reached())
        if not watch.is_over(now_s):
            return
        reached = watch.figures()
        self._run.note(reached, watch.cause)
        self._moved_s = reached.lost_s
        self._watch = None
        self._answer(ReachedMsg(text_of(reached), figures_of(reached)))

    def _has_trained(self, worker: int, last_incarnation: int) -> bool:
        incarnation = self._last_incarnation(worker)
        if incarnation <= last_incarnation:
            return False
        if self._run.job.train.mode == "sync":  # a crew commits together: it has begun something that is committed
            begun = self._watermarks.begun(worker, incarnation)
            return begun > 0 and step_of(begun) < self._dense.version()
        return self._dense.applied(worker, incarnation).sequence > 0

    def _is_reached(self) -> bool:
        """What runs is what the plan wants, where it wants it."""
        plan, fleet = self._run.plan, self._run.fleet
        for spec in plan.processes:
            record = fleet.named(spec.role, spec.index)
            if record is None or not record.can_work or record.asked is not None:
                return False
            if (record.spec.cores, record.spec.threads) != (spec.cores, spec.threads):
                return False
        wanted = {(spec.role, spec.index) for spec in plan.processes}
        live = {(record.process.role, record.process.index) for record in fleet if record.is_live}
        return live <= wanted and self._parts.roster.holdings.is_handed_over

    def _answer(self, reply: ReachedMsg | RefusedMsg) -> None:
        peers, self._peers = self._peers, []
        for peer in peers:
            self._run.commands.reply(peer, reply)


def _received(commands: CommandServer, refused: Callable[[ProtocolError], None]) -> Iterator[tuple[bytes, Command]]:
    """The commands that have come, so many of them that a turn stays short."""
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
    """The run has ended: what was sent meanwhile is answered."""
    for peer, _ in _received(commands, lambda _: None):
        commands.reply(peer, RefusedMsg(why))
