"""The session of a PS: fences, duplicates, and the clock of bounded mode compared with a simple model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elastichost.plan import ProcessId
from elastichost.ps.session import Reply, Session
from tests.effort import examples


def worker(index: int, incarnation: int = 1) -> ProcessId:
    return ProcessId("worker", index, incarnation)


def test_a_fenced_incarnation_and_older_ones_are_refused_for_good_and_the_next_is_not() -> None:
    session = Session(shard_map_epoch=1)
    session.fence(0, 2)
    for incarnation in (1, 2):
        refusal = session.refuse(worker(0, incarnation), None)
        assert refusal is not None and refusal.final
    assert session.refuse(worker(0, 3), None) is None
    assert session.refuse(worker(1, 1), None) is None


def test_a_stale_epoch_is_refused_but_not_for_good() -> None:
    session = Session(shard_map_epoch=2)
    refusal = session.refuse(worker(0), 1)
    assert refusal is not None and not refusal.final
    assert session.refuse(worker(0), 2) is None


def test_no_worker_runs_further_ahead_than_the_staleness() -> None:
    session = Session()
    assert session.advanced(worker(0), b"a", 1, 0, 2) == (Reply(b"a", 1, 0),)
    assert session.advanced(worker(1), b"b", 1, 0, 2) == (Reply(b"b", 1, 0),)
    assert session.advanced(worker(0), b"a", 2, 2, 2) == (Reply(b"a", 2, 0),)
    assert session.advanced(worker(0), b"a", 3, 3, 2) == ()
    assert session.advanced(worker(1), b"b", 2, 1, 2) == (Reply(b"a", 3, 1), Reply(b"b", 2, 1))


def test_no_worker_waits_for_a_dead_or_idle_one() -> None:
    session = Session()
    session.advanced(worker(0), b"a", 1, 0, 1)
    session.advanced(worker(1), b"b", 1, 0, 1)
    assert session.advanced(worker(0), b"a", 2, 5, 1) == ()
    assert session.fence(1, 1) == (Reply(b"a", 2, 5),)
    session.advanced(worker(1, 2), b"c", 1, 0, 1)  # a newcomer starts level with the slowest
    assert session.slowest() == 5
    assert session.advanced(worker(0), b"a", 3, 7, 1) == ()
    idle = session.advanced(worker(1, 2), b"c", 2, -1, 1)
    assert Reply(b"a", 3, 7) in idle and any(reply.peer == b"c" for reply in idle)


def test_an_older_membership_that_comes_late_changes_nothing() -> None:
    """The older membership has an old incarnation, and would remove its successor from the clock."""
    session = Session()
    session.set_members(1, ((0, 1), (1, 1)))
    session.set_members(2, ((0, 2), (1, 1)))
    session.advanced(worker(0, 2), b"a", 1, 0, 1)
    session.advanced(worker(1), b"b", 1, 0, 1)
    assert session.set_members(1, ((0, 1),)) == session.set_members(2, ()) == ()
    assert session.counts(worker(0, 2)) and not session.counts(worker(0, 1))
    assert session.advanced(worker(1), b"b", 2, 2, 1) == (), "it waits for the other worker, which is still a member"


def test_a_late_request_does_not_bring_a_worker_back_into_the_clock() -> None:
    session = Session()
    session.advanced(worker(0), b"a", 1, 3, 1)
    session.advanced(worker(1), b"b", 1, 3, 1)
    session.advanced(worker(0), b"a", 2, -1, 1)
    assert session.advanced(worker(0), b"a", 1, 3, 1) == (), "a late, repeated request"
    assert session.advanced(worker(1), b"b", 2, 9, 1) == (Reply(b"b", 2, 9),), "no other worker is on the clock"


class BoundedClock(RuleBasedStateMachine):
    """Workers advance only when they are answered; an answered worker was within the bound; no worker waits longer than
    the bound requires."""

    STALENESS = 2

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.incarnations = {0: 1, 1: 1, 2: 1}
        self.done: dict[int, int] = {}  # logical clocks of the workers on the clock
        self.told: set[int] = set()  # those that this incarnation of the dense owner has heard of
        self.base: dict[int, int] = {}  # as the last answer named it
        self.local: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.requests = 0

    def take(self, replies: tuple[Reply, ...]) -> None:
        for reply in replies:
            index = int(reply.peer)
            self.waiting.pop(index, None)
            self.base[index] = reply.base
            assert self.done[index] - self.STALENESS <= self.slowest()

    def slowest(self) -> int:
        return min((self.done[index] for index in self.told), default=0)

    def ask(self, index: int) -> None:
        if index not in self.base:
            self.done[index] = self.slowest() if self.told else self.local[index]
        self.told.add(index)
        self.requests += 1
        self.waiting[index] = self.requests
        asked = (str(index).encode(), self.requests, self.local[index], self.STALENESS, self.base.get(index))
        self.take(self.session.advanced(worker(index, self.incarnations[index]), *asked))

    @rule(index=st.integers(0, 2))
    def finish_a_batch(self, index: int) -> None:
        if index in self.waiting:
            return
        self.local[index] = self.local[index] + 1 if index in self.local else 0
        if index in self.base:
            self.done[index] += 1
        self.ask(index)

    @rule(index=st.integers(0, 2))
    def die(self, index: int) -> None:
        for known in (self.waiting, self.done, self.local, self.base):
            known.pop(index, None)  # type: ignore[attr-defined]
        self.told.discard(index)
        self.take(self.session.fence(index, self.incarnations[index]))
        self.incarnations[index] += 1

    @rule()
    def the_dense_owner_dies(self) -> None:
        """Those that wait ask its successor again, in any order; the others when they have finished their batches."""
        self.session, asking = Session(), list(self.waiting)
        self.told.clear()
        self.waiting.clear()
        for index in self.incarnations:
            self.session.fence(index, self.incarnations[index] - 1)
        for index in asking:
            self.ask(index)

    @invariant()
    def only_those_too_far_ahead_wait(self) -> None:
        """One that does not wait may be too far ahead of a worker that this dense owner has heard of since."""
        for index in self.waiting:
            assert self.done[index] - self.STALENESS > self.slowest()
        assert self.session.slowest() == self.slowest()


BoundedClock.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestBoundedClock = BoundedClock.TestCase
