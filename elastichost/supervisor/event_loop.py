"""The supervisor's event loop: one turn waits for a message, an exit, a signal or a timer, and calls its handler.

The loop contains no training logic. A phase supplies it: the user's model is described (`phases.description`), or the
job trains (`phases.training`).

One turn, in order: wait; take events of the fork server; route messages; handle exits that are due; let the phase
change the plan; reconcile; let the phase act on the processes; sync the journal; report.
"""

from __future__ import annotations

from typing import Protocol

from elastichost.errors import PreflightError
from elastichost.host.kernel_cache import kernel_cache
from elastichost.host.stop_signals import StopSignals
from elastichost.runs import events
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.processes import ProcessController
from elastichost.supervisor.core.work_budget import WorkBudget
from elastichost.supervisor.launch.events import Exited
from elastichost.supervisor.launch.messages import PreparedMsg
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.supervisor.message_router import MessageRouter
from elastichost.supervisor.status import Reporter
from elastichost.wire.commands import CommandServer

__all__ = ["EventLoop", "KilledError", "Phase"]

TICK_S = 0.1
LAST_WORDS_S = 0.1  # a process reports its error before it exits, but the report can arrive after the exit event
STALL_S = 2.0  # a longer turn means that the supervisor itself stood still: Ctrl-Z, a debugger, a machine that swaps


class KilledError(Exception):
    """A second stop signal has come: all processes are killed now."""


class Phase(Protocol):
    """What a turn of the loop does between waiting and reporting. state: one word for status.json and the screen."""

    @property
    def processes(self) -> ProcessController: ...

    @property
    def router(self) -> MessageRouter: ...

    @property
    def state(self) -> str: ...

    @property
    def components(self) -> Components | None:
        """The components of the run; None before the arena exists."""

    def tick_s(self, now_s: float) -> float:
        """How long a turn may wait for a message, an exit or a signal."""

    def commands(self) -> CommandServer | None:
        """The socket that commands arrive on; None while this phase takes none."""

    def before_reconcile(self, now_s: float) -> None:
        """Steps that may change the plan."""

    def after_reconcile(self, now_s: float) -> None:
        """Steps that depend on the processes after reconciliation."""


class EventLoop:
    """The loop of one supervisor, used by all its phases. compiles_kernels: the fork server does, or the next one
    will."""

    def __init__(self, run: RunContext, signals: StopSignals, reporter: Reporter) -> None:
        self._run, self._signals, self._reporter = run, signals, reporter
        self._exits: list[tuple[float, Exited]] = []
        self._said_prepared: PreparedMsg | None = None
        self.compiles_kernels = not kernel_cache().is_filled
        self._turned_s = self._rested_s = run.now_s()
        self._budget, self._worked_s = WorkBudget(), 0.0

    def turn(self, phase: Phase) -> None:
        """One turn. Raises KilledError when a second stop signal or SIGQUIT has come, and the error that the job fails
        with."""
        run = self._run
        self._rest()
        descriptors = (*run.launcher.descriptors(), self._signals.descriptor)
        commands = phase.commands()
        heard = (commands.socket,) if commands is not None else ()
        run.control.poll(phase.tick_s(run.now_s()), descriptors, heard)
        began_s = run.now_s()
        self._signals.clear()
        self._look_at_clock()
        if self._signals.count > 1:
            raise KilledError
        self._take_launch_events(phase.processes)
        phase.router.take()
        for event in phase.router.take_exits():
            self._wait_for_last_words(event)
        now_s = run.now_s()
        self._handle_due_exits(phase.processes, now_s)
        phase.before_reconcile(now_s)
        phase.processes.reconcile(self._look_at_clock())
        phase.after_reconcile(now_s)
        run.journal.sync(now_s)
        self._reporter.tick(phase.state, phase.components, now_s)
        self._worked_s = run.now_s() - began_s

    def forget_exits(self) -> None:
        """Drops exits that are not handled yet: a roll-back has ended all processes."""
        self._exits.clear()
        self._turned_s = self._run.now_s()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Waits for messages to accumulate when turns follow each other too fast (`core.work_budget`)."""
        now_s = self._run.now_s()
        passed_s, self._rested_s = now_s - self._rested_s, now_s
        if (rest_s := self._budget.rest_s(self._worked_s, passed_s)) >= 0.001:
            wait_readable([self._signals.descriptor], rest_s)

    def _look_at_clock(self) -> float:
        """Extends the deadlines of all processes when the supervisor itself stood still. Returns the present time."""
        now_s = self._run.now_s()
        stood_s, self._turned_s = now_s - self._turned_s, now_s
        if stood_s > STALL_S:
            self._run.fleet.extend_deadlines(stood_s)
            self._run.note(events.SupervisorStalled(stood_s))
        return now_s

    # --- the fork server ----------------------------------------------------------------------------------------------

    def _take_launch_events(self, processes: ProcessController) -> None:
        for event in self._run.launcher.events():
            if isinstance(event, Exited):
                self._wait_for_last_words(event)
            else:
                processes.launch_event(event)
        self._look_at_fork_server()

    def _wait_for_last_words(self, event: Exited) -> None:
        wait_s = LAST_WORDS_S if event.code >= 0 else 0.0
        self._exits.append((self._run.now_s() + wait_s, event))

    def _look_at_fork_server(self) -> None:
        prepared = self._run.launcher.prepared
        if prepared is None or prepared is self._said_prepared:
            return
        self._said_prepared = prepared
        if prepared.error:
            raise PreflightError(
                f"the libraries of a worker cannot be imported:\n{prepared.error}", hint="run `elastichost doctor`"
            )
        self._run.note(events.ForkServerReady(prepared.seconds, compiled_kernels=self.compiles_kernels))
        self.compiles_kernels = not kernel_cache().is_filled
        if prepared.threads > 1:
            self._run.note(events.ForkServerThreads(prepared.threads))

    def _handle_due_exits(self, processes: ProcessController, now_s: float) -> None:
        due = [event for due_s, event in self._exits if due_s <= now_s]
        self._exits = [(due_s, event) for due_s, event in self._exits if due_s > now_s]
        for event in due:
            processes.launch_event(event)
