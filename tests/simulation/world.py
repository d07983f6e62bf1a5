"""A simulated host: one clock, one queue of events, processes that take turns. The seed determines everything.

Every process of a history is a thread, so that the project's own loops can run as they are, but only one runs at a
time: it runs until it waits, then the next event decides which one runs. Time passes only while all of them wait.
"""

from __future__ import annotations

import heapq
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from elastichost.plan import ProcessId

__all__ = ["Actor", "KilledError", "World", "activate", "active", "current"]

MAX_EVENTS = 400_000
STACK_BYTES = 1 << 20
MAX_EVENTS_AT_ONCE = 20_000


class KilledError(BaseException):
    """Stands for SIGKILL. The code of the process must not catch it."""


@dataclass(eq=False)
class Actor:
    """One process, or the test itself. wait: counts its waits; an event for an older wait is ignored."""

    name: str
    process: ProcessId | None = None
    pid: int = 0
    is_alive: bool = True
    is_killed: bool = False
    is_waiting: bool = False
    wait: int = 0
    waits_for: tuple[object, ...] = ()
    stands_still_until_s: float = 0.0
    dies_at: dict[str, int] = field(default_factory=dict)  # crash point ("" for any) -> passages left
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.turn.acquire()


class World:
    """The state of one history. violations: texts of broken invariants. log: events, for a history that failed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_s = 0.0
        self.main = Actor("main")
        self.running = self.main
        self.violations: list[str] = []
        self.log: list[str] = []
        self.events = 0
        self.stall_share = 0.0
        # The parts of the history: `network.Network`, `memory.Memory`, `rows.RowBook`, `computing.Samples`,
        # `supervision.Checkpoints`.
        self.network: object = None
        self.memory: object = None
        self.book: object = None
        self.samples: object = None
        self.checkpoints: object = None
        self.compute_s = 0.01
        self.left_open: list[Callable[[], None]] = []  # closed at the end, for processes that were killed
        self.on_exit: Callable[[Actor, int], None] = lambda actor, code: None
        self.on_killed: Callable[[Actor], None] = lambda actor: None
        self._heap: list[tuple[float, int, Callable[[], Actor | None]]] = []
        self._number = 0
        self._moved_at_event = 0
        self._started: list[tuple[Actor, threading.Thread]] = []
        self._is_over = False

    def note(self, text: str) -> None:
        self.log.append(f"{self.now_s:9.4f} {self.running.name}: {text}")

    def violated(self, text: str) -> None:
        self.violations.append(text)
        self.note(f"VIOLATION {text}")

    # --- events -----------------------------------------------------------------------------------------------

    def at(self, delay_s: float, act: Callable[[], Actor | None]) -> None:
        """Calls `act` after this delay. It may return the actor that runs next."""
        self._number += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._number, act))

    def later(self, delay_s: float, act: Callable[[], object]) -> None:
        """Calls `act` after this delay. It wakes no actor."""

        def alone() -> None:
            act()

        self.at(delay_s, alone)

    def wait(self, sources: tuple[object, ...] = (), timeout_s: float | None = None) -> None:
        """The running actor waits until `wake` names one of the sources, or the time is over. Raises KilledError."""
        actor = self.running
        self._check_alive(actor)
        actor.wait += 1
        actor.is_waiting, actor.waits_for = True, sources
        if timeout_s is not None:
            self._resume_later(actor, max(timeout_s, 1e-6))
        following = self._next()
        if following is not actor:
            following.turn.release()
            actor.turn.acquire()
        self._check_alive(actor)

    def sleep(self, seconds: float) -> None:
        self.wait((), seconds)

    def wake(self, actor: Actor, source: object) -> None:
        """Wakes an actor, a moment later, if it waits for this source."""
        if actor.is_waiting and any(source is wanted for wanted in actor.waits_for):
            self._resume_later(actor, self.random.random() * 2e-4)

    def _resume_later(self, actor: Actor, delay_s: float) -> None:
        wait = actor.wait

        def resume() -> Actor | None:
            if not actor.is_waiting or actor.wait != wait:
                return None
            if self.now_s < actor.stands_still_until_s and not actor.is_killed:
                self._resume_later(actor, actor.stands_still_until_s - self.now_s)
                return None
            return actor

        self.at(delay_s, resume)

    def _next(self) -> Actor:
        self.running = self.main  # events belong to no actor
        while True:
            if self._is_over or not self._heap:
                self.main.is_waiting = False
                return self.main
            at_s, _, act = heapq.heappop(self._heap)
            self.events += 1
            if at_s > self.now_s:
                self.now_s, self._moved_at_event = at_s, self.events
            if self.events > MAX_EVENTS or self.events - self._moved_at_event > MAX_EVENTS_AT_ONCE:
                self.violated(f"no end after {self.events} events, at {self.now_s:.3f} s")
                self._is_over = True
                continue
            actor = act()
            if actor is not None:
                actor.is_waiting = False
                self.running = actor
                return actor

    def _check_alive(self, actor: Actor) -> None:
        if actor.is_killed:
            raise KilledError

    # --- processes ----------------------------------------------------------------------------------------------

    def start(self, actor: Actor, body: Callable[[], int]) -> None:
        """Starts `body` as a process at the next event. It returns its exit code."""

        def run() -> None:
            actor.turn.acquire()
            code = -9
            try:
                self._check_alive(actor)
                code = body()
            except KilledError:
                pass
            except BaseException:  # noqa: BLE001 - any error must end the history and be reported
                self.violated(f"{actor.name} raised:\n{traceback.format_exc()}")
                code = 1
            actor.is_alive = False
            if not self._is_over:
                self.on_exit(actor, code)
            self._next().turn.release()

        actor.wait, actor.is_waiting = 1, True
        before = threading.stack_size(STACK_BYTES)
        thread = threading.Thread(target=run, name=actor.name, daemon=True)
        thread.start()
        threading.stack_size(before)
        self._started.append((actor, thread))
        self._resume_later(actor, 1e-6)

    def kill(self, actor: Actor) -> None:
        """Kills an actor, which may be the running one at a crash point."""
        if not actor.is_alive or actor.is_killed:
            return
        actor.is_killed = True
        self.note(f"{actor.name} is killed")
        self.on_killed(actor)
        if actor is self.running:
            raise KilledError
        self._resume_later(actor, 1e-7)

    def crash_point(self, name: str) -> None:
        """Replaces `wire.crash.crash_point`: may kill the actor or let it pause."""
        actor = self.running
        for key in (name, ""):
            if key in actor.dies_at:
                actor.dies_at[key] -= 1
                if actor.dies_at[key] <= 0:
                    self.note(f"at {name}")
                    self.kill(actor)
        if self.stall_share and self.random.random() < self.stall_share:
            self.sleep(self.random.choice((0.0005, 0.002, 0.01, 0.08, 0.4)))

    # --- the whole ------------------------------------------------------------------------------------------------

    def run(self, limit_s: float) -> None:
        """Runs until `finish` is called, no event is left, or the clock reaches `limit_s`."""
        self.at(limit_s, self._too_late)
        self.main.wait += 1
        self.main.is_waiting = True
        following = self._next()
        if following is not self.main:
            following.turn.release()
            self.main.turn.acquire()

    def _too_late(self) -> None:
        if not self._is_over:
            self.violated(f"not done at {self.now_s:.1f} s")
            self._is_over = True

    def finish(self) -> None:
        """Ends the history, so that the test continues."""
        self._is_over = True

    def close(self) -> None:
        """Ends all threads."""
        self._is_over = True
        for actor, thread in self._started:
            if actor.is_alive:
                actor.is_killed = True
                self.running = actor
                actor.turn.release()
                self.main.turn.acquire()
            thread.join(5.0)
        for close in self.left_open:
            close()


_active: list[World] = []


def activate(world: World | None) -> None:
    """Makes this the world that the simulated sockets, clocks and files belong to."""
    _active.clear()
    if world is not None:
        _active.append(world)


def active() -> World:
    """The world of the history that runs."""
    return _active[0]


def current() -> Actor:
    """The actor that runs."""
    return _active[0].running
