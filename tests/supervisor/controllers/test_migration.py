"""Moves of buckets between hosts by the real shard map controller. Any PS may die, and the plan may change, at any
moment.

PS are models: each has the contents of its host's arena and takes messages in order. The rows of a bucket are one
number, which grows with every update.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastichost.plan import Access, Plan, ProcessId, ProcessSpec
from elastichost.runs.events import AnyEvent, BucketsMoved, BucketsMoving, MoveAborted, ShardMapPublished
from elastichost.specs import TableSpec
from elastichost.supervisor.controllers.migration import MOST_RETRY_S, MigrationController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core import migration
from elastichost.supervisor.core.backoff import FREED_BYTES
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.supervisor.memory.actions import relocated
from elastichost.wire.control import (
    BucketsMeasuredMsg,
    CopiedMsg,
    CopyBucketsMsg,
    ForgetBucketsMsg,
    ForgottenMsg,
    KeepBucketsMsg,
    MeasureBucketsMsg,
    MembershipMsg,
    ReadyMsg,
    ShardMapUpdateMsg,
)
from elastichost.wire.facts import ServerAddress
from elastichost.worker.channels.exchange import MapsLeft
from tests.effort import examples
from tests.supervisor.noted import Noted

Key = tuple[int, int]
HOSTS = 2
TABLES = (TableSpec("a", 0, ("a",), "int", rows=6 * 1024), TableSpec("b", 1, ("b",), "int", rows=2 * 1024))
BUCKETS = [(0, bucket) for bucket in range(6)] + [(1, bucket) for bucket in range(2)]
BUCKET_BYTES = 100 << 20  # two a round
NO_ROOM = "ArenaFullError: no room"


def spec(index: int) -> ProcessSpec:
    """A PS; those with an even index are on host 0, the others on host 1."""
    return ProcessSpec("server", index, (), 1, host=index % HOSTS)


def plan(servers: set[int], access: Access = "served") -> Plan:
    return Plan(tuple(spec(index) for index in sorted(servers)), access, "a test")


@dataclass
class Server:
    """An incarnation of a PS. answers: messages to the supervisor that have not arrived yet."""

    process: ProcessId
    epoch: int = 0
    owned: frozenset[Key] = frozenset()
    inbox: deque[tuple[Any, list[bytes]]] = field(default_factory=deque)
    answers: deque[Any] = field(default_factory=deque)
    order: CopyBucketsMsg | None = None
    has_answered: bool = True  # the last request to copy
    copied: set[Key] = field(default_factory=set)
    pending: tuple[ShardMapUpdateMsg, frozenset[Key]] | None = None
    to_forget: list[ForgetBucketsMsg] = field(default_factory=list)

    @property
    def host(self) -> int:
        return self.process.index % HOSTS


class World(RuleBasedStateMachine):
    """The real controller, and models of all other processes."""

    access: Access = "served"

    @initialize(servers=st.sets(st.integers(1, 3), max_size=2))
    def start(self, servers: set[int]) -> None:
        self.now_s = 0.0
        self.arenas: list[dict[Key, int]] = [{} for _ in range(HOSTS)]
        self.halves: list[set[Key]] = [set() for _ in range(HOSTS)]  # copied to this host, not all rows yet
        self.truth = dict.fromkeys(BUCKETS, 0)
        self.servers: dict[int, Server] = {}
        self.incarnations: dict[int, int] = {}
        self.workers: tuple[int, dict[Key, int]] = (0, {})  # epoch and owners of the map that workers have
        self.moved: list[int] = []
        self.announced: list[tuple[float, str]] = []  # times and kinds of events: moves begin or are aborted
        self.noted = Noted()
        self.run = SimpleNamespace(
            fleet=Fleet(),
            plan=plan({0, *servers}, self.access),
            now_s=lambda: self.now_s,
            send=self.send,
            send_all=self.send_all,
            **{**self.noted.attributes, "note": self.note},
            keyring=None,
            elsewhere={},
            address_of=self.address_of,
        )
        self.sharding = ShardMapController(self.run, TABLES, None)  # type: ignore[arg-type]

    # --- effects of the controller ----------------------------------------------------------------------------

    def address_of(self, record: Any, process: ProcessId) -> ServerAddress:
        return ServerAddress(process.index, process.incarnation, record.address if record is not None else "")

    def send(self, process: ProcessId, message: Any, frames: Any = ()) -> bool:
        living = self.servers.get(process.index)
        if living is not None and living.process == process and not isinstance(message, MembershipMsg):
            living.inbox.append((message, list(frames)))
        return True

    def send_all(self, processes: Any, message: Any, frames: Any = ()) -> None:
        for process in processes:
            self.send(process, message, frames)

    def note(self, event: AnyEvent, cause: str | None = None) -> None:
        if isinstance(event, MoveAborted | BucketsMoving):
            self.announced.append((self.now_s, event.kind))
        if isinstance(event, BucketsMoved):
            assert event.durability == "at_once", "the line is on disk before a process acts on it"
            self.moved.append(event.buckets)
        if isinstance(event, ShardMapPublished):
            present = self.sharding.shard_map
            owners = {
                (table, bucket): owner for table, row in enumerate(present.owners) for bucket, owner in enumerate(row)
            }
            assert present.epoch > self.workers[0]
            self.workers = (present.epoch, owners)
            for key, owner in owners.items():
                assert self.arenas[owner % HOSTS].get(key) == self.truth[key], "workers find the old rows"

    # --- steps of PS ----------------------------------------------------------------------------------------

    def wanting(self) -> set[int]:
        """PS that must run."""
        return {one.index for one in self.run.plan.servers} | set(self.sharding.holdings.owners)

    def begin_incarnation(self, index: int) -> None:
        self.incarnations[index] = self.incarnations.get(index, 0) + 1
        process = ProcessId("server", index, self.incarnations[index])
        self.servers[index] = Server(process)
        record = self.run.fleet.request(process, spec(index), self.now_s)
        for event in (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO):
            self.run.fleet.apply(record, event, self.now_s)
        record.address = f"ipc://{process}"
        self.sharding.server_connected(record)

    def end_incarnation(self, index: int) -> None:
        living = self.servers.pop(index)
        record = self.run.fleet.find(living.process)
        self.run.fleet.apply(record, LifecycleEvent.EXIT_OTHER, self.now_s)
        self.sharding.server_gone(living.process)

    def handle_message(self, living: Server) -> None:
        message, frames = living.inbox.popleft()
        match message:
            case ShardMapUpdateMsg():
                if message.epoch > living.epoch:
                    self.learn(living, message, frames)
            case MeasureBucketsMsg():
                assert all(key in self.arenas[living.host] for key in message.buckets)
                living.answers.append(BucketsMeasuredMsg(message.request, (BUCKET_BYTES,) * len(message.buckets)))
            case CopyBucketsMsg():
                before = living.order.moves if living.order is not None else ()
                moves = tuple(move for move in message.moves if (move.table, move.bucket) not in living.owned)
                message = CopyBucketsMsg(message.copy, moves)
                living.copied &= {(m.table, m.bucket) for m in message.moves if m in before}
                for move in message.moves:
                    self.halves[living.host].add((move.table, move.bucket))
                    self.arenas[living.host].pop((move.table, move.bucket), None)
                living.order, living.has_answered = message, False
            case KeepBucketsMsg():
                pass
            case ForgetBucketsMsg():
                living.to_forget.append(message)
                self.forget(living)

    def learn(self, living: Server, message: ShardMapUpdateMsg, frames: list[bytes]) -> None:
        index = living.process.index
        owned = frozenset(
            (table, bucket)
            for table, frame in enumerate(frames)
            for bucket, owner in enumerate(np.frombuffer(frame, np.uint16))
            if owner == index
        )
        living.pending = None
        living.owned &= owned
        living.pending = (message, owned)
        self.adopt(living)

    def adopt(self, living: Server) -> None:
        """Answers Ready when all moved rows are here."""
        if living.pending is None:
            return
        message, owned = living.pending
        arena, gained = self.arenas[living.host], owned - living.owned
        moved = gained & set(message.moved)
        if not all(self.fetch(living, key) for key in moved):
            return
        for key in gained - moved:
            if message.epoch == 1 or not self.workers[0]:
                arena.setdefault(key, 0)
            assert key in arena, f"{living.process} takes bucket {key}, but its rows are on another host"
        living.epoch, living.owned, living.pending = message.epoch, owned, None
        living.copied -= moved
        self.forget(living)
        living.answers.append(ReadyMsg(message.epoch))

    def fetch(self, living: Server, key: Key) -> bool:
        """Fetches the last rows from the PS that has released them."""
        order = living.order.moves if living.order is not None else ()
        move = next((move for move in order if (move.table, move.bucket) == key), None)
        source = self.servers.get(move.source.index) if move is not None else None
        if (
            move is None
            or source is None
            or source.process.incarnation != move.source.incarnation
            or key in source.owned
        ):
            return False
        self.arenas[living.host][key] = self.arenas[source.host][key]
        self.halves[living.host].discard(key)
        return True

    def forget(self, living: Server) -> None:
        for message in list(living.to_forget):
            keys = set(message.buckets)
            if living.order is not None:
                moves = tuple(move for move in living.order.moves if (move.table, move.bucket) not in keys)
                living.order = CopyBucketsMsg(living.order.copy, moves)
            if keys & living.owned:
                continue
            for key in keys:
                others = [arena[key] for host, arena in enumerate(self.arenas) if host != living.host and key in arena]
                assert others == [self.truth[key]], f"{living.process} frees the only rows of {key}"
                self.arenas[living.host].pop(key, None)
                self.halves[living.host].discard(key)
            living.to_forget.remove(message)
            living.answers.append(ForgottenMsg(message.request))

    def handle_answer(self, living: Server) -> None:
        answer = living.answers.popleft()
        record = self.run.fleet.find(living.process)
        if isinstance(answer, ReadyMsg):
            self.run.fleet.apply(record, LifecycleEvent.READY, self.now_s)
            self.sharding.server_ready(record, answer)
        else:
            self.sharding.moving(record, answer)

    def copy_on(self, living: Server, failure: str = "") -> None:
        """Makes all requested copies from live incarnations, or reports that there is no memory for them."""
        order = living.order
        assert order is not None
        for move in order.moves:
            source = self.servers.get(move.source.index)
            if source is None or source.process.incarnation != move.source.incarnation:
                return
            living.copied.add((move.table, move.bucket))
        living.has_answered = True
        living.answers.append(CopiedMsg(order.copy, BUCKET_BYTES * len(order.moves), failure, is_full=bool(failure)))

    def steps_of_workers(self) -> list[Callable[[], None]]:
        """Steps of workers that use rows in place; none here."""
        return []

    # --- rules ----------------------------------------------------------------------------------------------

    def one_of(self, data: st.DataObject, what: Any) -> Server:
        """Draws a PS for which `what` is true."""
        return self.servers[data.draw(st.sampled_from(sorted(i for i, s in self.servers.items() if what(s))))]

    @precondition(lambda self: self.wanting() - set(self.servers))
    @rule(data=st.data())
    def a_ps_comes(self, data: st.DataObject) -> None:
        self.begin_incarnation(data.draw(st.sampled_from(sorted(self.wanting() - set(self.servers)))))

    @precondition(lambda self: any(s.inbox for s in self.servers.values()))
    @rule(data=st.data())
    def a_ps_takes_a_message(self, data: st.DataObject) -> None:
        self.handle_message(self.one_of(data, lambda s: s.inbox))

    @precondition(lambda self: any(s.answers for s in self.servers.values()))
    @rule(data=st.data())
    def an_answer_comes(self, data: st.DataObject) -> None:
        self.handle_answer(self.one_of(data, lambda s: s.answers))

    @precondition(lambda self: any(not s.has_answered for s in self.servers.values()))
    @rule(data=st.data(), is_full=st.integers(0, 9))
    def a_ps_has_copied(self, data: st.DataObject, is_full: int) -> None:
        self.copy_on(self.one_of(data, lambda s: not s.has_answered), "" if is_full else NO_ROOM)

    @precondition(lambda self: any(s.pending for s in self.servers.values()))
    @rule(data=st.data())
    def rows_arrive(self, data: st.DataObject) -> None:
        self.adopt(self.one_of(data, lambda s: s.pending))

    @precondition(lambda self: any(s.pending and s.order and s.order.moves for s in self.servers.values()))
    @rule(data=st.data())
    def there_is_no_room_for_the_last_rows(self, data: st.DataObject) -> None:
        living = self.one_of(data, lambda s: s.pending and s.order and s.order.moves)
        assert living.order is not None
        living.has_answered = True
        living.answers.append(CopiedMsg(living.order.copy, 0, NO_ROOM, is_full=True))

    @rule(seed=st.integers(0, 1 << 30), number=st.integers(1, 60))
    def time_passes(self, seed: int, number: int) -> None:
        """No PS dies; messages arrive in some order."""
        chance = random.Random(seed)
        for _ in range(number):
            for index in sorted(self.wanting() - set(self.servers)):
                self.begin_incarnation(index)
            steps: list[Callable[[], None]] = [self.a_turn]
            for living in self.servers.values():
                steps += [partial(self.handle_message, living)] * bool(living.inbox)
                steps += [partial(self.handle_answer, living)] * bool(living.answers)
                steps += [partial(self.copy_on, living)] * (not living.has_answered)
                steps += [partial(self.adopt, living)] * (living.pending is not None)
            steps += self.steps_of_workers()
            chance.choice(steps)()

    @precondition(lambda self: self.servers)
    @rule(data=st.data())
    def a_ps_dies(self, data: st.DataObject) -> None:
        self.end_incarnation(self.one_of(data, lambda s: True).process.index)

    @rule(servers=st.sets(st.integers(1, 3), max_size=3))
    def the_plan_changes(self, servers: set[int]) -> None:
        self.run.plan = plan({0, *servers}, self.access)

    @rule()
    def a_turn(self) -> None:
        self.now_s += 0.5
        self.sharding.follow_plan()
        for index in sorted(set(self.servers) - self.wanting()):
            assert not self.servers[index].owned, "a PS that owns buckets must not be stopped"
            self.end_incarnation(index)

    @precondition(lambda self: self.workers[0])
    @rule(key=st.sampled_from(BUCKETS))
    def a_row_is_updated(self, key: Key) -> None:
        epoch, owners = self.workers
        owner = self.servers.get(owners[key])
        if owner is not None and owner.epoch == epoch and key in owner.owned:
            self.arenas[owner.host][key] += 1
            self.truth[key] += 1
            assert self.arenas[owner.host][key] == self.truth[key]

    # --- invariants -----------------------------------------------------------------------------------------

    @invariant()
    def a_bucket_has_one_owner_at_most_and_its_rows_somewhere(self) -> None:
        if not hasattr(self, "servers"):
            return
        owned = [key for living in self.servers.values() for key in living.owned]
        assert len(owned) == len(set(owned))
        if self.workers[0]:
            for key in BUCKETS:
                assert self.truth[key] in [arena.get(key) for arena in self.arenas], f"the rows of {key} are lost"

    def teardown(self) -> None:
        """When no PS dies any more, all buckets reach the hosts of the plan, and no other host keeps memory of them."""
        if not hasattr(self, "servers"):
            return
        for _ in range(400):
            for index in sorted(self.wanting() - set(self.servers)):
                self.begin_incarnation(index)
            for living in list(self.servers.values()):
                while living.inbox:
                    self.handle_message(living)
                if not living.has_answered:
                    self.copy_on(living)
                self.adopt(living)
                while living.answers:
                    self.handle_answer(living)
            for step in self.steps_of_workers():
                step()
            self.now_s += 30.0
            self.a_turn()
        assert self.sharding.holdings.is_handed_over
        assert self.sharding.shard_map.served == ()
        counts = [len(living.owned) for living in self.servers.values()]
        assert sum(counts) == len(BUCKETS) and max(counts) - min(counts) <= 1
        assert not any(self.halves)
        assert set(self.servers) == {one.index for one in self.run.plan.servers}
        for host, arena in enumerate(self.arenas):
            here = {key for living in self.servers.values() if living.host == host for key in living.owned}
            assert set(arena) == here, "no memory is kept for copies that are not needed"
            assert all(arena[key] == self.truth[key] for key in here)


@pytest.fixture(autouse=True)
def a_round_is_aborted_after_two_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "MOST_DEATHS", 1)


World.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
TestMovesUnderFire = World.TestCase


# --- workers that use rows in place -----------------------------------------------------------------------------------


@dataclass
class Worker:
    """A worker incarnation. batches: the map with which each waiting batch was prepared, oldest first."""

    record: Any
    host: int
    inbox: deque[tuple[ShardMapUpdateMsg, list[bytes]]] = field(default_factory=deque)
    known: tuple[int, frozenset[Key]] = (0, frozenset())  # epoch, buckets that it may use in place
    batches: deque[tuple[int, frozenset[Key]]] = field(default_factory=deque)
    maps: MapsLeft = field(default_factory=MapsLeft)
    answers: deque[int] = field(default_factory=deque)


class MappedWorld(World):
    """One worker on every host. It prepares batches ahead, and trains each with the map it was prepared with."""

    access = "mixed"

    def __init__(self) -> None:
        super().__init__()
        self.living: dict[int, Worker] = {}
        self.worker_incarnations = dict.fromkeys(range(HOSTS), 0)

    def send(self, process: ProcessId, message: Any, frames: Any = ()) -> bool:
        if process.role != "worker":
            return super().send(process, message, frames)
        worker = self.living.get(process.index)
        if worker is not None and worker.record.process == process:
            worker.inbox.append((message, list(frames)))
        return True

    def address_of(self, record: Any, process: ProcessId) -> ServerAddress:
        return ServerAddress(process.index, process.incarnation, "", process.index % HOSTS)

    # --- steps of workers -----------------------------------------------------------------------------------

    def a_worker_begins(self, index: int) -> None:
        self.worker_incarnations[index] += 1
        process = ProcessId("worker", index, self.worker_incarnations[index])
        place = ProcessSpec("worker", index, (), 1, host=index)
        record = self.run.fleet.request(process, place, self.now_s)
        self.living[index] = Worker(record, index)
        for event in (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO):
            self.run.fleet.apply(record, event, self.now_s)
        self.sharding.worker_connected(record)

    def learns(self, worker: Worker) -> None:
        update, frames = worker.inbox.popleft()
        owners = {
            (table, bucket): int(owner)
            for table, frame in enumerate(frames)
            for bucket, owner in enumerate(np.frombuffer(frame, np.uint16))
        }
        here = {server.index for server in update.servers if server.host == worker.host}
        mapped = frozenset(key for key, owner in owners.items() if owner in here) - frozenset(update.served)
        assert update.epoch > worker.known[0]
        worker.known = update.epoch, mapped
        self.reports_unmapped(worker)

    def prepares(self, worker: Worker) -> None:
        worker.batches.append(worker.known)

    def trains(self, worker: Worker) -> None:
        epoch, mapped = worker.batches.popleft()
        for key in mapped:
            assert not self.is_copied(key), f"{key} changes in place while its PS is asked for copies"
            arena = self.arenas[worker.host]
            assert arena.get(key) == self.truth[key], "the PS must have the present rows"
            arena[key] += 1
            self.truth[key] += 1
        worker.maps.trained(epoch)
        self.reports_unmapped(worker)

    def reports_unmapped(self, worker: Worker) -> None:
        """The worker takes a new map between two batches."""
        epoch = worker.maps.due(worker.known[0], is_idle=not worker.batches)
        if epoch is not None:
            worker.answers.append(epoch)

    def sends_answer(self, worker: Worker) -> None:
        self.sharding.unmapped(worker.record.process, worker.answers.popleft())

    def is_copied(self, key: Key) -> bool:
        """Whether a PS of another host fetches the bucket."""
        return any(
            (move.table, move.bucket) == key and key not in self.arenas[living.host]
            for living in self.servers.values()
            if living.order is not None
            for move in living.order.moves
        )

    def steps_of_workers(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        for index in range(HOSTS):
            worker = self.living.get(index)
            if worker is None:
                steps.append(partial(self.a_worker_begins, index))
                continue
            steps += [partial(self.learns, worker)] * bool(worker.inbox)
            steps += [partial(self.prepares, worker)] * (worker.known[0] > 0 and len(worker.batches) < 3)
            steps += [partial(self.trains, worker)] * bool(worker.batches)
            steps += [partial(self.sends_answer, worker)] * bool(worker.answers)
        return steps

    # --- rules ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.steps_of_workers())
    @rule(data=st.data())
    def a_worker_goes_on(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.steps_of_workers()))()

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def a_worker_dies(self, data: st.DataObject) -> None:
        worker = self.living.pop(data.draw(st.sampled_from(sorted(self.living))))
        self.run.fleet.apply(worker.record, LifecycleEvent.EXIT_OTHER, self.now_s)
        self.sharding.worker_gone(worker.record.process)


MappedWorld.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
TestMovesOfMappedRowsUnderFire = MappedWorld.TestCase


# --- rounds that are aborted again and again --------------------------------------------------------------------------


def test_the_wait_after_any_number_of_aborted_rounds_is_the_longest_one() -> None:
    noted = Noted()
    run: Any = SimpleNamespace(fleet=Fleet(), plan=plan({0, 1}), now_s=lambda: 100.0, **noted.attributes)
    controller = MigrationController(run, lambda reason: None)
    for _ in range(1024 + 1):
        controller.begin((migration.Move(0, 0, 0, 1),), "test")
        controller.give_up("the plan changed")
        assert not controller.is_open and controller.waits
    waits = [event.wait_s for event in noted.of(MoveAborted)]
    assert waits[:3] == [1.0, 2.0, 4.0] and waits[1023:] == [MOST_RETRY_S] * 2


# --- hosts without memory ---------------------------------------------------------------------------------------------


class Full:
    """A world in which the second host has no memory while `is_full`. at_s: times at which it was asked for copies."""

    def __init__(self, servers: set[int]) -> None:
        self.world = World()
        self.world.start(servers)
        self.is_full, self.at_s = True, list[float]()
        for _ in range(40):
            self.turn()

    def turn(self) -> None:
        """Every PS handles all its messages, then the supervisor takes one turn."""
        world = self.world
        for index in sorted(world.wanting() - set(world.servers)):
            world.begin_incarnation(index)
        for living in list(world.servers.values()):
            while living.inbox:
                world.handle_message(living)
            if not living.has_answered and living.order is not None:
                if living.order.moves:
                    self.at_s.append(world.now_s)
                world.copy_on(living, NO_ROOM if self.is_full and living.host else "")
            world.adopt(living)
            while living.answers:
                world.handle_answer(living)
        world.a_turn()

    def turns(self, seconds: float) -> None:
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            self.turn()


def test_a_plan_without_memory_is_tried_less_and_less_often_and_journalled_once() -> None:
    full = Full(set())
    full.world.run.plan = plan({0, 1})
    full.turns(2000.0)
    waits = [after - before for before, after in zip(full.at_s, full.at_s[1:], strict=False)]
    assert [round(wait / 30.0) for wait in waits] == [1, 2, 4, 8, 16, 20]
    assert [kind for _, kind in full.world.announced] == ["buckets_moving", "move_aborted"]
    assert full.world.sharding.may_cut, "checkpoints may be taken meanwhile"
    full.is_full = False
    full.turns(700.0)
    assert sum(full.world.moved) == len(BUCKETS) // 2
    assert full.world.sharding.may_take(1)


def test_free_memory_ends_the_wait_early() -> None:
    full = Full(set())
    full.world.run.plan = plan({0, 1})
    full.world.sharding.know_room({0: 1 << 30, 1: 1 << 20})
    full.turns(100.0)
    requests = len(full.at_s)
    full.is_full = False
    full.world.sharding.know_room({0: 1 << 30, 1: (1 << 20) + FREED_BYTES})
    full.turns(5.0)
    assert len(full.at_s) > requests and full.world.moved


def test_another_plan_need_not_wait() -> None:
    full = Full(set())
    full.world.run.plan = plan({0, 1})
    full.turns(5.0)
    full.world.run.plan = plan({0, 2})
    full.turns(5.0)
    assert full.world.sharding.holdings.is_handed_over
    assert {owner for row in full.world.sharding.shard_map.owners for owner in row} == {0, 2}


def test_a_relocation_without_memory_is_dropped() -> None:
    """The rebalancer decides again, and knows that this host has no memory for now."""
    full = Full({1})
    full.is_full = False
    full.turns(20.0)
    full.is_full = True
    sharding = full.world.sharding
    assert sharding.may_take(1)
    target = relocated(sharding.shard_map, sharding.hosts, 0, 1, 0.5)
    moved = len(full.world.moved)
    assert sharding.relocate(target, "host 1 has memory left")
    full.turns(5.0)
    assert sharding.holdings.is_handed_over and not sharding.may_take(1)
    assert len(full.world.moved) == moved
    full.turns(600.0)
    assert sharding.holdings.is_handed_over and sharding.may_take(1)
    assert len(full.world.moved) == moved
