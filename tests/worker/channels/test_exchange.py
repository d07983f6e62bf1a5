"""The exchange: rows are staged before commits; windows, resends, repeated answers; progress is reported once."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elastichost.errors import ProtocolError
from elastichost.wire.data import DensePushedMsg, DensePushMsg
from elastichost.worker.channels.exchange import (
    WINDOW,
    DenseStream,
    LeaseAccount,
    MapsLeft,
    PauseGate,
    RowStream,
    half_of,
)
from tests.effort import examples


def push(sequence: int, *, lease: int = 1, stop: int = 0, samples: int = 4, skipped: int = 0) -> DensePushMsg:
    return DensePushMsg(
        request=sequence,
        sequence=sequence,
        mailbox=0,
        lease_id=lease,
        epoch=0,
        unit=0,
        start=0,
        stop=stop,
        samples=samples,
        skipped=skipped,
        want_parameters=False,
    )


def acknowledged(sequence: int) -> DensePushedMsg:
    return DensePushedMsg(request=sequence, sequence=sequence, version=sequence, samples_applied=0)


def test_a_pause_is_answered_once_unless_it_was_cancelled_meanwhile() -> None:
    gate = PauseGate()
    assert gate.due() is None
    gate.asked = 1
    assert gate.due() == 1
    gate.proceed(1)  # a process died: the cut is abandoned before this worker has paused
    assert not gate.answer(1)
    gate.asked = 2
    assert gate.due() == 2
    gate.proceed(1)
    assert gate.answer(2)
    assert gate.due() is None
    gate.proceed(2)
    assert gate.asked is None
    gate.asked = 3
    gate.asked = 4
    assert not gate.answer(3)
    assert gate.due() == 4


def test_a_shard_map_is_left_behind_after_a_batch_of_a_newer_one_or_when_nothing_is_prepared() -> None:
    maps = MapsLeft()
    assert maps.due(3, is_idle=True) == 3
    assert maps.due(3, is_idle=True) is None
    maps.trained(3)
    assert maps.due(4, is_idle=False) is None, "the batch that waits was prepared by the older map"
    maps.trained(4)
    maps.trained(4)
    assert maps.due(5, is_idle=False) == 4
    assert maps.due(5, is_idle=False) is None
    assert maps.due(5, is_idle=True) == 5


def test_window_and_order_are_enforced() -> None:
    stream = DenseStream()
    for sequence in range(1, WINDOW + 1):
        stream.push(push(sequence))
    with pytest.raises(ProtocolError, match="already outstanding"):
        stream.push(push(WINDOW + 1))
    stream.acknowledge(acknowledged(1))
    with pytest.raises(ProtocolError, match="follows"):
        stream.push(push(WINDOW + 2))


def test_an_acknowledgement_of_a_push_that_was_never_sent_is_refused() -> None:
    with pytest.raises(ProtocolError, match="never sent"):
        DenseStream().acknowledge(acknowledged(1))


class Commits(RuleBasedStateMachine):
    """A PS that dies at any time and applies each sequence once; answers that are lost or overtaken. Every push is
    acknowledged to the account once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = DenseStream()
        self.network: list[DensePushMsg] = []
        self.applied: list[int] = []
        self.answers: list[int] = []
        self.counted: list[int] = []
        self.halves: dict[int, int] = {}

    @rule()
    def train(self) -> None:
        if self.stream.is_full:
            return
        message = push(self.stream.sequence + 1)
        half = half_of(message.sequence)
        assert half not in self.halves.values(), "a mailbox half is overwritten while its push is outstanding"
        self.halves[message.sequence] = half
        self.stream.push(message)
        self.network.append(message)

    @rule()
    def serve(self) -> None:
        if self.network:
            message = self.network.pop(0)
            if message.sequence not in self.applied:
                assert message.sequence == len(self.applied) + 1
                self.applied.append(message.sequence)
            self.answers.append(message.sequence)

    @rule(lose_answers=st.booleans())
    def server_dies(self, lose_answers: bool) -> None:
        self.network = list(self.stream.to_resend())
        if lose_answers:
            self.answers.clear()

    @rule(which=st.integers(0, 3), is_lost=st.booleans())
    def answer(self, which: int, is_lost: bool) -> None:
        if not self.answers:
            return
        answer = self.answers.pop(which % len(self.answers))
        for done in self.stream.acknowledge(acknowledged(answer)) if not is_lost else ():
            self.counted.append(done.sequence)
            del self.halves[done.sequence]

    @invariant()
    def pushes_are_counted_once_and_only_after_they_were_applied(self) -> None:
        assert self.counted == list(range(1, len(self.counted) + 1))
        assert set(self.counted) <= set(self.applied)
        assert len(self.halves) <= WINDOW


Commits.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestCommits = Commits.TestCase


def test_progress_sums_within_a_lease_and_is_reported_once() -> None:
    account = LeaseAccount()
    account.committed(push(1, lease=7, stop=4))
    account.committed(push(2, lease=7, stop=9, samples=4, skipped=1))
    account.committed(push(3, lease=8, stop=4))
    first = account.changes()
    assert [(p.lease_id, p.stop, p.samples, p.skipped) for p in first] == [(7, 9, 8, 1), (8, 4, 4, 0)]
    assert account.changes() == ()
    account.skipped(8, 6, 2)
    assert [(p.stop, p.samples, p.skipped) for p in account.changes()] == [(6, 4, 2)]


SERVERS = (0, 1, 2)


class RowsBeforeCommits(RuleBasedStateMachine):
    """Owners that die, lose messages, and get shard maps before or after the worker. A commit is handed out once, when
    every owner has staged its part once, and rows are never two batches ahead of the commits."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.dense = RowStream(), DenseStream()
        self.epoch = 1  # shard map epoch of the worker and of the supervisor
        self.known = dict.fromkeys(SERVERS, 1)
        self.request = 0
        self.owners: frozenset[int] = frozenset()
        self.network: list[tuple[int, int, int, int]] = []  # server, epoch, request, sequence
        self.answers: list[tuple[bool, int]] = []
        self.applied = {server: list[int]() for server in SERVERS}
        self.committed: list[int] = []

    def cut(self) -> None:
        assert self.rows.commit is not None
        sequence, numbers = self.rows.commit.sequence, range(self.request + 1, self.request + 1 + len(self.owners))
        self.request += len(self.owners)
        self.rows.cut(self.epoch, dict(zip(numbers, self.owners, strict=True)))
        self.network += [
            (server, self.epoch, number, sequence) for server, number in zip(self.owners, numbers, strict=True)
        ]
        self.take()

    def take(self) -> None:
        commit = self.rows.take()
        if commit is not None:
            assert all(self.applied[server][-1] == commit.sequence for server in self.owners)
            self.dense.push(commit)

    @rule(owners=st.frozensets(st.sampled_from(SERVERS)))
    def train(self, owners: frozenset[int]) -> None:
        following = push(self.dense.sequence + 1)
        if not self.rows.is_empty:
            with pytest.raises(ProtocolError, match="before those"):
                self.rows.begin(following)
        elif self.dense.is_empty:
            self.owners = owners
            self.rows.begin(following)
            assert self.rows.take() is None
            self.cut()

    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        if self.network:
            server, epoch, number, sequence = self.network.pop(data.draw(st.integers(0, len(self.network) - 1)))
            agrees = epoch == self.known[server]
            if agrees and sequence not in self.applied[server]:
                self.applied[server].append(sequence)
            self.answers.append((agrees, number))

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if self.answers:
            applied, number = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
            (self.rows.answer if applied else self.rows.refuse)(number)
            self.take()

    @rule(server=st.sampled_from(SERVERS))
    def server_learns(self, server: int) -> None:
        self.known[server] = self.epoch

    @rule(server=st.sampled_from(SERVERS), is_dead=st.booleans(), first=st.booleans())
    def shard_map_changes(self, server: int, is_dead: bool, first: bool) -> None:
        if is_dead:
            self.network = [message for message in self.network if message[0] != server]
        self.epoch += 1
        if first:
            self.known[server] = self.epoch
        if not self.rows.is_empty and self.epoch > self.rows.epoch:
            self.cut()

    @rule()
    def wait_after_a_refusal(self) -> None:
        if self.rows.is_refused and not self.rows.is_empty:
            self.cut()

    @rule()
    def commit(self) -> None:
        for message in self.dense.to_resend():
            self.dense.acknowledge(acknowledged(message.sequence))
            self.committed.append(message.sequence)

    @invariant()
    def one_batch_is_torn_at_most(self) -> None:
        reached = max((sequences[-1] for sequences in self.applied.values() if sequences), default=0)
        assert reached <= len(self.committed) + 1
        assert self.committed == list(range(1, len(self.committed) + 1))

    def teardown(self) -> None:
        """When all processes have the same shard map, the batch can always be finished."""
        self.known = dict.fromkeys(SERVERS, self.epoch)
        if not self.rows.is_empty:
            self.cut()
        while self.network:
            server, _, number, sequence = self.network.pop()
            if sequence not in self.applied[server]:
                self.applied[server].append(sequence)
            self.rows.answer(number)
        self.take()
        assert self.rows.is_empty


RowsBeforeCommits.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestRowsBeforeCommits = RowsBeforeCommits.TestCase
