"""The step queue: every micro-batch is computed by a worker, and none of a step that is not open."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastichost.micro_batches import MicroBatch, micro_ranges, step_range, steps_of
from elastichost.wire.control import CrewMsg, StepsGrantMsg
from elastichost.wire.facts import Lease
from elastichost.worker.sync.step_queue import StepQueue
from tests.effort import examples

WORKERS = (0, 1, 2)


def grant_of(lease_id: int, first_step: int, start: int, stop: int) -> StepsGrantMsg:
    return StepsGrantMsg(Lease(lease_id, epoch=0, unit=3, start=start, stop=stop), -1, first_step)


def queue_of(*workers: int, batch_size: int = 4, left_out: tuple[tuple[int, int], ...] = ()) -> StepQueue:
    """The queue of worker 0 in a crew."""
    queue = StepQueue(worker=0, batch_size=batch_size, micros=len(workers))
    assert queue.crew(CrewMsg(1, workers, left_out))
    return queue


def test_nothing_is_due_before_the_dense_owner_has_named_the_step() -> None:
    queue = queue_of(0, 0)
    queue.grant(grant_of(1, 1, 0, 8))
    assert queue.due() is None and list(queue.ahead()) == []
    queue.reached(1)
    assert queue.due() == MicroBatch(1, 0, 2, 4, 1, 0, 3, 0, 2, -1, False)


def test_own_micro_batches_come_in_order_and_those_of_later_steps_only_ahead() -> None:
    queue = queue_of(0, 1, 0)
    queue.grant(grant_of(1, 5, 10, 20))
    queue.reached(5)
    assert [(task.step, task.micro, task.start, task.stop) for task in queue.ahead()] == [
        (5, 0, 10, 12),
        (6, 0, 14, 16),
        (7, 0, 18, 20),
    ], "two samples are one micro-batch: each has at least two"
    task = queue.due()
    assert task is not None
    queue.pushed(task)
    assert queue.due() is None, "the rest of the step belongs to another worker"
    queue.reached(6)
    assert queue.due() is not None


def test_an_old_crew_changes_nothing_and_a_newer_one_takes_over_at_once() -> None:
    queue = queue_of(1, 1)
    queue.grant(grant_of(1, 1, 0, 4))
    queue.reached(1)
    assert queue.due() is None
    assert not queue.crew(CrewMsg(1, (0, 0)))
    assert queue.crew(CrewMsg(2, (0, 0), ((1, 1),)))
    assert [(task.micro, task.is_left_out) for task in queue.ahead()] == [(0, False), (1, True)]


def test_a_new_shard_map_opens_the_step_again() -> None:
    queue = queue_of(0)
    queue.grant(grant_of(1, 1, 0, 8))
    queue.reached(1)
    task = queue.due()
    assert task is not None
    queue.pushed(task)
    queue.reached(1)
    assert queue.due() is None, "for the same step the record of pushed micro-batches is kept"
    queue.reopen()
    assert queue.due() is None, "the dense owner must be asked first"
    queue.reached(1)
    assert queue.due() == task


def test_a_grant_known_already_is_ignored_and_a_finished_one_forgotten() -> None:
    queue = queue_of(0)
    for _ in range(2):
        queue.grant(grant_of(1, 1, 0, 4))
    queue.reached(1)
    assert len(list(queue.ahead())) == 1
    assert queue.has_grant
    queue.reached(2)
    assert not queue.has_grant
    queue.grant(grant_of(2, 2, 4, 8))
    assert queue.has_grant


def test_a_worker_with_grants_of_later_steps_only_asks_again() -> None:
    """The worker joined when the other workers had just finished the grant of the step that it had received."""
    queue = queue_of(0)
    queue.reached(6)
    assert not queue.has_grant, "the request would never be answered"
    queue.grant(grant_of(4, 7, 8, 12))
    assert queue.has_grant and queue.due() is None
    queue.reached(7)
    assert queue.due() is not None


class Steps(RuleBasedStateMachine):
    """Three workers; a dense owner that commits a step when all its micro-batches were pushed under the present shard
    map; grants and crews that come late, twice or out of order. In the end every micro-batch of every step was computed
    by a member of the crew of that time, and none of a step that was not open, also when workers join, leave or start
    a step again."""

    @initialize(batch_size=st.integers(1, 9), micros=st.integers(1, 4))
    def begin(self, batch_size: int, micros: int) -> None:
        self.batch_size, self.micros = batch_size, min(micros, batch_size)
        self.queues = {index: self.fresh(index) for index in WORKERS}
        self.grants: list[StepsGrantMsg] = []
        self.next_step = 1
        self.position = 0
        self.crew = CrewMsg(0, ())
        self.step = 1  # the first step that is not committed
        self.pushed: set[int] = set()
        self.done: dict[int, set[int]] = {}

    def fresh(self, index: int) -> StepQueue:
        return StepQueue(worker=index, batch_size=self.batch_size, micros=self.micros)

    @rule(samples=st.integers(1, 30))
    def grant(self, samples: int) -> None:
        made = grant_of(len(self.grants) + 1, self.next_step, self.position, self.position + samples)
        self.grants.append(made)
        self.next_step += steps_of(self.position, self.position + samples, self.batch_size)
        self.position += samples

    @rule(index=st.sampled_from(WORKERS), data=st.data())
    def a_grant_comes(self, index: int, data: st.DataObject) -> None:
        """In order, and perhaps repeated: a worker that joins receives all open grants."""
        if self.grants:
            self.open_grants_come(index, data.draw(st.integers(1, len(self.grants))))

    def open_grants_come(self, index: int, number: int | None = None) -> None:
        for made in self.grants[:number]:
            if made.first_step + steps_of(made.lease.start, made.lease.stop, self.batch_size) > self.step:
                self.queues[index].grant(made)

    @rule(workers=st.lists(st.sampled_from(WORKERS), min_size=4, max_size=4))
    def change_crew(self, workers: list[int]) -> None:
        self.crew = CrewMsg(self.crew.epoch + 1, tuple(workers[: self.micros]))

    @rule(index=st.sampled_from(WORKERS))
    def a_crew_comes(self, index: int) -> None:
        self.queues[index].crew(self.crew)

    @rule(index=st.sampled_from(WORKERS))
    def ask(self, index: int) -> None:
        self.queues[index].reached(self.step)

    @rule(index=st.sampled_from(WORKERS))
    def compute(self, index: int) -> None:
        queue = self.queues[index]
        task = queue.due()
        if task is None:
            return
        assert task.step == queue.step <= self.step
        made = next(g for g in reversed(self.grants) if g.first_step <= task.step)
        step = task.step - made.first_step
        positions = step_range(made.lease.start, made.lease.stop, self.batch_size, step)
        expected = micro_ranges(*positions, self.micros)
        assert (task.start, task.stop) == expected[task.micro] and task.micros == len(expected)
        assert queue._crew.workers[task.micro] == index
        queue.pushed(task)
        if task.step == self.step:
            self.pushed.add(task.micro)
            if len(self.pushed) == task.micros:
                self.done[self.step] = self.pushed
                self.step, self.pushed = self.step + 1, set()

    @rule()
    def shard_map_changes(self) -> None:
        self.pushed = set()
        for queue in self.queues.values():
            queue.reopen()
            assert queue.due() is None

    @rule(index=st.sampled_from(WORKERS))
    def die(self, index: int) -> None:
        self.queues[index] = self.fresh(index)

    @invariant()
    def no_worker_is_ahead_of_the_dense_owner(self) -> None:
        if hasattr(self, "queues"):
            assert all(queue.step <= self.step for queue in self.queues.values())

    def teardown(self) -> None:
        """When all workers have all messages and work, no step stays open."""
        if not hasattr(self, "queues"):
            return
        self.crew = CrewMsg(self.crew.epoch + 1, (WORKERS * 2)[: self.micros])
        while self.step < self.next_step:
            before = self.step, len(self.pushed)
            for index in WORKERS:
                self.a_crew_comes(index)
                self.open_grants_come(index)
                if self.queues[index].step == 0 or self.queues[index].has_grant:
                    self.ask(index)
                self.compute(index)
            assert before != (self.step, len(self.pushed)), (
                "no worker has a micro-batch to compute, but the step is open"
            )
        assert set(self.done) == set(range(1, self.next_step))


Steps.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestSteps = Steps.TestCase
