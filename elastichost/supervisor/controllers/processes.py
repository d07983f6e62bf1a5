"""Starts, stops, kills and replaces processes: performs the actions of `core.reconciler`, and handles launch events."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from elastichost.errors import ElastichostError, HangError, RestartBudgetError
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.resources import GpuDevice
from elastichost.runs.events import (
    ForkServerLost,
    LogNotKept,
    ProcessDraining,
    ProcessEnded,
    ProcessKilling,
    ProcessLost,
    ProcessRepinning,
    ProcessReported,
    ProcessStarted,
    ProcessStartFailed,
    ProcessStarting,
    ProcessStopping,
    ReportNotKept,
)
from elastichost.supervisor.context import RunContext, exit_cause, host_cause
from elastichost.supervisor.controllers.liveness import SilenceWatch
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent, State
from elastichost.supervisor.core.reconciler import (
    USER_ERRORS,
    Action,
    Death,
    Drain,
    Failure,
    GiveUp,
    Kill,
    Repin,
    Spawn,
    StopProcess,
    error_of,
    reconcile,
)
from elastichost.supervisor.launch.events import (
    AgentLost,
    Exited,
    ForkServerExited,
    LaunchEvent,
    LogNotOpened,
    Started,
    StartFailed,
)
from elastichost.supervisor.startup.process_start import request_process
from elastichost.tuner.placement.readers import with_readers
from elastichost.wire import control as wire_control
from elastichost.wire.security.keys import KeyPair

__all__ = ["Holdings", "ProcessController"]

STACK_DUMP_S = 0.25  # between SIGUSR1, which dumps the stacks of a hung process, and SIGKILL
LOG_LINES = 20
QUIET_S = 1.6  # an agent sends a message every second; a longer silence means that its host is unreachable
REUNION_S = 5.0  # a host is reachable again: TCP, whose retries become rarer, may need this long to recover


class OnProcessExit(Protocol):
    """Called when an incarnation has ended. asked: the supervisor stopped it, or it held neither leases nor buckets."""

    def __call__(self, record: ProcessRecord, *, asked: bool) -> None: ...


class Holdings(NamedTuple):
    """owners: indices of PS that own buckets. is_handed_over: the PS of the plan own all buckets."""

    owners: frozenset[int] = frozenset()
    is_handed_over: bool = True


class ProcessController:
    """Starts and stops processes. ended: called once for every incarnation that ends. holdings: returns the PS that own
    buckets. host_lost: called when a machine is lost, before the ends of its processes are handled. gpus: of the
    job."""

    def __init__(
        self,
        run: RunContext,
        ended: OnProcessExit,
        holdings: Callable[[], Holdings],
        host_lost: Callable[[AgentLost], None],
        gpus: Sequence[GpuDevice] = (),
    ) -> None:
        self._run = run
        self._ended, self._host_lost, self._gpus = ended, host_lost, gpus
        self._watch = SilenceWatch(run.kernel_state)
        self._reconciled_s = run.now_s()
        self._excused_until_s = 0.0
        self._holdings = holdings

    # --- events of the fork server --------------------------------------------------------------------------

    def launch_event(self, event: LaunchEvent) -> None:
        """Handles an event of the fork server, or of an agent."""
        match event:
            case Started(process=process, pid=pid):
                self._started(process, pid)
            case StartFailed(process=process, reason=reason):
                self._start_failed(process, reason)
            case LogNotOpened(process=process):
                record = self._run.fleet.find(process)
                cause = record.cause if record is not None else None
                self._run.note(LogNotKept(process, f"{event.log}: {event.error}"), cause)
            case Exited():
                self._exited(event)
            case ForkServerExited(reason=reason):
                self._run.note(ForkServerLost(reason), self._run.new_cause("fork-server-lost"))
            case AgentLost(host=host) if self._run.uses(host):
                self._run.lose(event)
                with self._run.caused_by(host_cause(host)):
                    self._host_lost(event)
            case AgentLost():
                pass  # a machine that failed to join; `elastic_hosts.join` handles it

    def _started(self, process: ProcessId, pid: int) -> None:
        record = self._run.fleet.find(process)
        if record is None:
            self._run.launcher.kill(process)
            return
        if record.pid == pid:
            return  # its Hello arrived before the message of its agent, and gave the pid
        record.pid = pid
        self._run.fleet.apply(record, LifecycleEvent.SPAWNED, self._run.now_s())
        if record.state == State.KILLING:
            self._run.launcher.kill(process)
        self._run.note(ProcessStarted(process, pid), record.cause)

    def _start_failed(self, process: ProcessId, reason: str) -> None:
        record = self._run.fleet.find(process)
        if record is None or not record.is_live:
            return
        if record.state not in (State.REQUESTED, State.KILLING):  # its Hello came before the word of its agent
            self._exited(Exited(process, record.pid, -signal.SIGKILL))
            return
        now_s = self._run.now_s()
        self._run.fleet.apply(record, LifecycleEvent.SPAWN_FAILED, now_s)
        self._revoke(process)
        if self._run.uses(record.spec.host):  # as in `_exited`
            self._run.deaths.append(Death(process.name, now_s, "start", reason, process.incarnation))
        self._run.note(ProcessStartFailed(process, reason), record.cause)
        if process.role == "server":  # lost workers may be waiting for its answer
            self._ended(record, asked=record.kill_kind == "unwanted")

    def _exited(self, event: Exited) -> None:
        record = self._run.fleet.find(event.process)
        if record is None or not record.is_live:  # a roll-back has given it up, and it took its time to end
            return
        now_s = self._run.now_s()
        self._revoke(event.process)
        before = record.state
        self._run.fleet.apply(
            record, LifecycleEvent.EXIT_CLEAN if event.code == 0 else LifecycleEvent.EXIT_OTHER, now_s
        )
        asked = before in (State.STOPPING, State.DRAINED) or record.state == State.EXITED
        asked = asked or record.kill_kind == "unwanted"
        reason = self._reason(record, event)
        with self._run.caused_by(self._run.plan_cause if asked else exit_cause(event.process)):
            if asked:
                self._run.note(ProcessEnded(event.process, reason))
            else:
                if self._run.uses(record.spec.host):  # the loss of a host does not count against the restart budget
                    death = Death(event.process.name, now_s, _death_kind(record), reason, event.process.incarnation)
                    self._run.deaths.append(death)
                reported = record.failure.error_type if record.failure is not None and not record.kill_reason else ""
                self._run.note(ProcessLost(event.process, event.pid, event.code, before.value, reason, reported))
            self._ended(record, asked=asked)

    def _reason(self, record: ProcessRecord, event: Exited) -> str:
        if record.kill_reason:
            return f"killed: {record.kill_reason}"
        if record.failure is not None:
            first_line = record.failure.message.partition("\n")[0]
            return f"{record.failure.error_type}: {first_line}"
        return event.cause

    def reported(self, record: ProcessRecord, report: wire_control.FailureReportMsg) -> None:
        """A process has reported the error that it will exit with."""
        try:
            self._run.directory.write_error(record.process, report)
        except OSError as error:  # the journal still has the message
            self._run.note(ReportNotKept(record.process, str(error)))
        record.failure = Failure(report.error_type, report.message, report.hint, report.traceback_text, report.samples)
        self._run.fleet.apply(record, LifecycleEvent.REPORT, self._run.now_s())
        ends_run = report.error_type in USER_ERRORS
        self._run.note(
            ProcessReported(record.process, report.error_type, report.message, ends_run=ends_run),
            exit_cause(record.process),
        )

    # --- actions --------------------------------------------------------------------------------------------

    def reconcile(self, now_s: float) -> None:
        """Brings the processes nearer to the plan. now_s: the time that `EventLoop` has read after it extended the
        deadlines for its own stall. Raises the error that the job fails with."""
        run = self._run
        self._excuse_cut_off(now_s)
        self._watch.look(run.fleet, now_s)
        held = self._holdings()
        plan = with_readers(run.plan, run.job, self._training())
        if plan.workers:
            wanted = {f"{spec.role}-{spec.index}" for spec in plan.processes}
            run.fleet.accept_failures(wanted | {f"server-{index}" for index in held.owners})
        actions = reconcile(
            run.fleet.observed(),
            plan,
            run.deaths,
            run.limits,
            now_s,
            held.owners,
            is_handed_over=held.is_handed_over,
        )
        for action in actions:
            self._perform(action, now_s)
        for record in run.fleet:
            if record.kill_at_s is not None and record.kill_at_s <= now_s:
                record.kill_at_s = None
                run.launcher.kill(record.process)

    def _training(self) -> Iterator[ProcessSpec]:
        """The workers that may train: those that drain too, until they have drained."""
        ended = (State.DRAINED, State.STOPPING, State.KILLING)
        return (record.spec for record in self._run.fleet.live("worker") if record.state not in ended)

    def _excuse_cut_off(self, now_s: float) -> None:
        """Hang detection pauses while a host is unreachable: its processes cannot report progress, and others wait for
        them. A host that stays unreachable is declared lost elsewhere. Hang detection also pauses while training waits
        for disk space."""
        passed_s, self._reconciled_s = now_s - self._reconciled_s, now_s
        run = self._run
        if run.space.holds_training:
            run.fleet.extend_deadlines(passed_s)
        if run.machines is None:
            return
        if run.machines.silent_s(run.elsewhere) > QUIET_S:
            self._excused_until_s = now_s + REUNION_S
        if now_s < self._excused_until_s:
            run.fleet.extend_deadlines(passed_s)

    def _perform(self, action: Action, now_s: float) -> None:
        match action:
            case Spawn() if self._run.journal.problem:
                pass  # not before the journal can be written, or a resumed run would use this incarnation number again
            case Spawn():
                self._spawn(action, now_s)
            case Kill():
                self._kill(action, now_s)
            case Repin(process=process, spec=spec):
                self._repin(process, spec)
            case Drain(process=process, reason=reason):
                self._tell(
                    process, LifecycleEvent.DRAIN, wire_control.DrainMsg(), ProcessDraining(process, reason), now_s
                )
            case StopProcess(process=process, reason=reason):
                self._tell(
                    process, LifecycleEvent.STOP, wire_control.StopMsg(), ProcessStopping(process, reason), now_s
                )
            case GiveUp():
                raise self._give_up(action)

    def _spawn(self, action: Spawn, now_s: float) -> None:
        run, spec = self._run, action.spec
        process = ProcessId(spec.role, spec.index, action.incarnation)
        record = run.fleet.request(process, spec, now_s)
        record.cause = run.plan_cause
        if action.is_restart:
            record.cause = exit_cause(ProcessId(spec.role, spec.index, action.incarnation - 1))
        run.restarts += action.is_restart
        run.note(ProcessStarting(process, action.reason, spec.cores), record.cause)
        request_process(run, record, self._issue(record), self._gpus)

    def _repin(self, process: ProcessId, spec: ProcessSpec) -> None:
        record = self._run.fleet.find(process)
        if record is None:
            return
        record.asked = spec
        self._run.note(ProcessRepinning(process, spec.cores, spec.threads), self._run.plan_cause)
        self._run.send(process, wire_control.RepinMsg(spec.cores, spec.threads))

    def _issue(self, record: ProcessRecord) -> KeyPair | None:
        """The keys of a new process; None without other machines. PS are sent its public key before it starts."""
        if self._run.keyring is None:
            return None
        keys = self._run.keyring.issue(record.process, is_elsewhere=record.spec.host in self._run.elsewhere)
        self._tell_gates()
        return keys

    def _tell_gates(self) -> None:
        if self._run.keyring is not None:
            servers = [record.process for record in self._run.fleet.live("server") if record.address]
            self._run.send_all(servers, self._run.keyring.message())

    def _revoke(self, process: ProcessId) -> None:
        if self._run.keyring is not None and self._run.keyring.revoke(process):
            self._tell_gates()

    def give_up_gpus(self, lost: Collection[int], reason: str) -> None:
        """Kills the workers of lost GPUs, which may wait for them for ever. They are not in the plan any more, and
        their ends do not count against the restart budget."""
        for record in list(self._run.fleet):
            if record.spec.gpu in lost and record.is_live and record.state != State.KILLING:
                # one that has drained holds nothing any more: its end is no death
                has_drained = record.state in (State.DRAINED, State.STOPPING)
                self._kill(Kill(record.process, "unwanted" if has_drained else "slow", reason), self._run.now_s())

    def replace(self, process: ProcessId, reason: str) -> None:
        """Kills an incarnation that is too slow. The reconciler starts the next one as after any death."""
        self._kill(Kill(process, "slow", reason), self._run.now_s())

    def kill_invalid(self, process: ProcessId, reason: str) -> None:
        """Kills an incarnation that has sent impossible figures. Its key is revoked; the next incarnation gets another
        one."""
        record = self._run.fleet.find(process)
        if record is not None and record.state != State.KILLING:
            self._kill(Kill(process, "exit", reason), self._run.now_s())

    def _kill(self, action: Kill, now_s: float) -> None:
        record = self._run.fleet.find(action.process)
        if record is None:
            return
        record.kill_kind, record.kill_reason = action.kind, action.reason
        self._run.fleet.apply(record, LifecycleEvent.KILL, now_s)
        record.kill_at_s = now_s
        if action.kind == "hang" and record.pid:
            self._run.launcher.kill(action.process, signal.SIGUSR1)  # faulthandler writes all stacks to the log
            record.kill_at_s = now_s + STACK_DUMP_S
        self._run.note(ProcessKilling(action.process, action.kind, action.reason), exit_cause(action.process))

    def _tell(
        self,
        process: ProcessId,
        event: LifecycleEvent,
        message: wire_control.ControlMessage,
        told: ProcessDraining | ProcessStopping,
        now_s: float,
    ) -> None:
        record = self._run.fleet.find(process)
        if record is None:
            return
        self._run.fleet.apply(record, event, now_s)
        self._run.note(told, self._run.plan_cause)
        self._run.send(process, message)

    def _give_up(self, action: GiveUp) -> ElastichostError:
        """The error that the job ends with: the error that the process reported, or its deaths with the last lines of
        its log."""
        if action.kind == "failure" and action.failure is not None:
            return error_of(action.failure)
        lines = self._run.directory.last_log_lines(action.process, LOG_LINES)
        last = f"\nlast lines of its log:\n{lines}" if lines else ""
        why = f": {action.failure.message}" if action.failure is not None else ""
        message = f"{action.reason}{why}{last}"
        hint = (
            f"see {self._run.directory.log_of(action.process)} for the cause; a larger resources.restarts in the job "
            "file allows more restarts"
        )
        if action.kind == "hang":
            return HangError(message, hint=hint)
        last_error = action.failure.error_type if action.failure is not None else ""
        return RestartBudgetError(message, last_error=last_error, hint=hint)


def _death_kind(record: ProcessRecord) -> Literal["exit", "hang", "start", "slow"]:
    return "exit" if record.kill_kind == "unwanted" else record.kill_kind
