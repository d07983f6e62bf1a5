"""The timeline of an emulated worker makes up for lateness, not for real waits; whole jobs agree with the queue
simulator."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np
import pytest

from benchmarks.simulator.queueing.fork_join import simulate
from elastichost.emulation.prices import Pricing
from elastichost.emulation.scenarios import Scenario, scenario
from elastichost.emulation.server_queue import ServerQueue
from elastichost.emulation.timeline import MAX_LAG_S, WorkerTimeline
from elastichost.tuner.facts import Configuration


def test_a_worker_that_wakes_late_begins_at_the_planned_moment() -> None:
    timeline = WorkerTimeline(floor_s=0.0)
    timeline.computed_s = 10.0
    assert timeline.computes(pulled_s=9.0, now_s=10.0 + 0.9 * MAX_LAG_S) == 10.0
    assert timeline.late_s == 0.0


def test_a_worker_that_wakes_too_late_begins_now_and_its_lateness_is_counted() -> None:
    timeline = WorkerTimeline(floor_s=0.0)
    timeline.computed_s = 10.0
    assert timeline.computes(pulled_s=9.0, now_s=11.0) == 11.0
    assert timeline.late_s == 1.0
    assert timeline.pull_leaves(0.0, now_s=11.0) == 11.0, "the same lateness is counted once"
    assert timeline.late_s == 1.0


def test_nothing_begins_before_the_end_of_a_real_wait() -> None:
    timeline = WorkerTimeline(floor_s=0.0)
    timeline.computed_s = timeline.pull_free_s = 10.0
    timeline.hold(10.1)
    assert timeline.pull_leaves(0.0, now_s=10.15) == 10.1
    assert timeline.computes(pulled_s=10.0, now_s=10.15) == 10.1
    assert timeline.late_s == 0.0


def test_two_batches_are_read_ahead_and_no_more() -> None:
    timeline = WorkerTimeline(floor_s=0.0)
    left = []
    for pull_free_s in (0.0, 0.0, 100.0, 100.0, 100.0, 100.0):
        timeline.pull_free_s = pull_free_s
        left.append(timeline.pull_leaves(1.0, now_s=pull_free_s + 0.1))
    assert left[:2] == [1.0, 2.0]
    assert left[2:4] == [100.0, 100.0], "these were read before their pulls could leave"
    assert left[4:] == [101.0, 102.0], "these were read only when there was room"


# --- whole jobs, in virtual time ----------------------------------------------------------------------------------


class Job:
    """Workers and PS made of the parts that the processes use, driven event by event, without sockets."""

    def __init__(self, of: Scenario, configuration: Configuration, seed: int) -> None:
        self.of, self.cores = of, configuration.worker_cores
        self.shares = of.shares(configuration.servers).tolist()
        self.queues: list[ServerQueue[Callable[[float], None]]] = [
            ServerQueue(configuration.server_cores) for _ in self.shares
        ]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.number = 0
        self.finished: list[float] = []
        for index in range(configuration.workers):
            Worker(self, np.random.default_rng((seed, index))).pull(0.0)

    def at(self, moment_s: float, happens: Callable[[float], None]) -> None:
        self.number += 1
        heappush(self.events, (moment_s, self.number, happens))

    def run(self, iterations: int) -> float:
        """Iterations per second, after a warm-up of a fifth."""
        while len(self.finished) < 1.2 * iterations:
            queue = min(self.queues, key=lambda one: one.next_s)
            if queue.next_s <= self.events[0][0] if self.events else True:
                for done_s, happens in queue.advance(queue.next_s):
                    self.at(done_s, happens)
                continue
            moment_s, _, happens = heappop(self.events)
            happens(moment_s)
        warm = iterations // 5
        return (len(self.finished) - warm) / (self.finished[-1] - self.finished[warm - 1])


class Worker:
    """Does what `emulation.worker.EmulatedWorker` does in `_begin_pull`, `_train` and `_settled_s`."""

    def __init__(self, job: Job, generator: np.random.Generator) -> None:
        self.job, self.pricing, self.timeline = job, Pricing(job.of, generator), WorkerTimeline(0.0)
        self.pulled: float | None = None
        self.taken: float | None = None  # when the present batch was taken ...
        self.waits = False  # ... and whether it waits for earlier pushes
        self.begun = 0
        self.pushed: list[float] = []

    def ask(self, kind: str, sent_s: float, done: Callable[[float], None]) -> None:
        left = len(self.job.queues)

        def answered(_: float) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done(_)

        for index, (queue, share) in enumerate(zip(self.job.queues, self.job.shares, strict=True)):
            batch = self.job.of.workload.batch_size
            price = self.pricing.request(kind, batch, share, sent_s, is_dense_owner=index == 0)  # type: ignore[arg-type]
            queue.admit(price, answered)

    def pull(self, now_s: float) -> None:
        reading_s = self.pricing.reading_s(self.job.of.workload.batch_size)
        sent_s = self.timeline.pull_leaves(reading_s, now_s)
        self.job.at(sent_s, lambda _: self.ask("pull", sent_s, self.has_pulled))

    def has_pulled(self, now_s: float) -> None:
        self.pulled = now_s
        self.go_on(now_s)

    def go_on(self, now_s: float) -> None:
        if self.pulled is not None and self.taken is None and now_s >= self.timeline.computed_s:
            self.taken = self.timeline.pull_free_s = self.timeline.computes(self.pulled, now_s)
            self.pulled, self.waits = None, True
            if self.job.of.overlap != "nothing":
                self.pull(now_s)
        needed = self.begun - (self.job.of.overlap == "both")
        if self.waits and self.taken is not None and len(self.pushed) >= needed:
            self.waits = False
            begins_s = max(self.taken, self.pushed[needed - 1] if needed > 0 else 0.0)
            self.begun += 1
            took = self.pricing.computing(self.job.of.workload.batch_size, self.job.cores)
            self.timeline.computed_s = begins_s + took.wall_s
            self.job.at(self.timeline.computed_s, self.has_computed)

    def has_computed(self, now_s: float) -> None:
        self.taken = None
        self.ask("push", now_s, self.has_pushed)
        self.go_on(now_s)

    def has_pushed(self, now_s: float) -> None:
        self.pushed.append(now_s)
        self.job.finished.append(now_s)
        if self.job.of.overlap == "nothing":
            self.timeline.pull_free_s = now_s
            self.pull(now_s)
        self.go_on(now_s)


@pytest.mark.parametrize(
    ("name", "configuration"),
    [
        ("compute_bound", Configuration(6, 2, 2, 1)),
        ("server_bound", Configuration(12, 2, 1, 2)),
        ("network_bound", Configuration(8, 2, 1, 1)),
        ("reader_bound", Configuration(4, 2, 4, 1)),
        ("hot_server", Configuration(12, 4, 1, 1)),
        ("unpipelined", Configuration(6, 3, 1, 1)),
    ],
)
def test_the_parts_have_the_throughput_of_the_queue_simulator(name: str, configuration: Configuration) -> None:
    of, iterations = scenario(name), 3000
    found = Job(of, configuration, seed=1).run(iterations) * of.workload.batch_size
    truth = simulate(of, configuration, iterations // configuration.workers, seed=2).samples_per_s
    assert found == pytest.approx(truth, rel=0.03)
