"""An emulated PS over a real arena and real sockets, driven turn by turn: each answer leaves once, when it is due."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.config.job import load_job
from elastichost.config.sections.emulate import NewIdsSettings
from elastichost.emulation.exchange import DONE
from elastichost.emulation.model import TABLES, emulated_model
from elastichost.emulation.prices import Price
from elastichost.emulation.server import GRAIN_S, EmulatedServer
from elastichost.plan import ProcessId
from elastichost.sharding import even_shard_map
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import ControlMessage, HeartbeatMsg, RepinMsg, RepinnedMsg, ShardMapUpdateMsg
from elastichost.wire.data import DataMessage, PulledMsg, PullMsg, RetryMsg
from elastichost.wire.sockets import ControlServer, DataClient

JOB = 7
SERVER, WORKER = ProcessId("server", 0, 1), ProcessId("worker", 0, 1)
EXAMPLE = Path(__file__).parents[2] / "examples" / "emulated.toml"
LIMIT_S = 10.0


class Bench:
    """One PS that owns all buckets, the supervisor's end of its control socket, and a worker."""

    def __init__(self, folder: Path) -> None:
        arena = folder / "arena"
        arena.mkdir()
        model = emulated_model(NewIdsSettings())
        job = load_job(EXAMPLE, environ={})
        Arena.create(arena, plan_layout(model, job.job.seed, 1 << 24)).close()
        self.control = ControlServer(f"ipc://{folder}/control", JOB)
        arguments = ChildArguments(
            "server",
            0,
            1,
            job_id=JOB,
            control_address=self.control.address,
            run_dir=str(folder),
            arena_directory=str(arena),
            socket_directory=str(folder),
            cores=(),
            threads=1,
            access="served",
            supervisor_pid=1,
        )
        self.server = EmulatedServer(arguments, job)
        owners = even_shard_map(model.tables, (0,), 1).owners
        frames = tuple(memoryview(np.array(row, np.uint16).tobytes()) for row in owners)
        self.server._handle(Envelope(None, 1, ShardMapUpdateMsg(1, (), 0), frames))
        self.worker = DataClient(f"ipc://{folder}/{SERVER}", JOB, WORKER, "emulated1")
        self.tables = len(model.tables)
        self.waiter = self.server._waiter()

    def ask(self, request: int, price: Price | None, epoch: int = 1) -> None:
        counts = (1,) * TABLES
        frames = [np.zeros(TABLES, np.int64), *([price.encode()] if price is not None else [])]
        self.worker.send(PullMsg(request, epoch, create=False, weights=False, counts=counts), frames)

    def turn(self) -> None:
        """Does one turn as the loop of the PS does."""
        self.waiter.wait(0.05)
        self.server._handle_data()

    def until(self, find: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not find():
            assert time.monotonic() < deadline_s
            self.turn()

    def answer(self) -> Envelope[DataMessage]:
        found: list[Envelope[DataMessage]] = []
        self.until(lambda: found.extend([one] if (one := self.worker.receive()) is not None else []) or found)
        return found[0]

    def told(self, kind: type[ControlMessage]) -> ControlMessage:
        """Returns the next message of this kind that the PS sent to the supervisor."""
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            assert time.monotonic() < deadline_s
            self.control.poll(0.05)
            envelope = self.control.receive()
            if envelope is not None and isinstance(envelope.message, kind):
                return envelope.message

    def close(self) -> None:
        self.worker.close()
        self.server.close()
        self.control.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_an_answer_leaves_when_its_core_is_done_and_has_that_moment(bench: Bench) -> None:
    sent_s = time.monotonic()
    bench.ask(1, Price(sent_s, 0.01, 0.2, 0.0, 0.05))
    answer = bench.answer()
    assert time.monotonic() >= sent_s + 0.27 - GRAIN_S
    assert isinstance(answer.message, PulledMsg) and answer.message.request == 1
    assert DONE.unpack(answer.frames[1])[0] == pytest.approx(sent_s + 0.27)
    assert bench.server.due_s() == float("inf")


def test_a_request_that_comes_again_is_served_once(bench: Bench) -> None:
    sent_s = time.monotonic()
    for _ in range(3):
        bench.ask(1, Price(sent_s, 0.0, 0.15, 0.0, 0.0))
    bench.ask(2, Price(sent_s, 0.0, 0.15, 0.0, 0.0))
    first, second = bench.answer(), bench.answer()
    assert (first.message.request, second.message.request) == (1, 2)
    assert DONE.unpack(second.frames[1])[0] == pytest.approx(sent_s + 0.3), "two services, not four"
    bench.ask(1, Price(sent_s, 0.0, 0.0, 0.0, 0.0))
    assert bench.answer().message.request == 1, "after its answer the same request may be sent again"


def test_requests_without_a_price_and_refused_ones_are_answered_at_once(bench: Bench) -> None:
    bench.ask(1, None)
    answer = bench.answer()
    assert isinstance(answer.message, PulledMsg) and len(answer.frames[0]) == 8 * TABLES
    bench.ask(2, Price(time.monotonic(), 0.0, 1e6, 0.0, 0.0), epoch=9)
    assert isinstance(bench.answer().message, RetryMsg)


def test_a_repin_changes_virtual_cores_only(bench: Bench) -> None:
    before = os.sched_getaffinity(0)
    sent_s = time.monotonic()
    for request in (1, 2):
        bench.ask(request, Price(sent_s, 0.0, 0.2, 0.0, 0.0))
    bench.server._handle(Envelope(None, 1, RepinMsg((5000, 5001), threads=2), ()))
    assert bench.told(RepinnedMsg) == RepinnedMsg((5000, 5001))
    assert os.sched_getaffinity(0) == before
    done = [DONE.unpack(bench.answer().frames[1])[0] for _ in range(2)]
    assert done == pytest.approx([sent_s + 0.2] * 2, abs=0.1), "two cores serve both at the same time"


def test_the_busy_time_of_the_ps_is_what_requests_cost(bench: Bench) -> None:
    bench.server._show_progress()
    bench.told(HeartbeatMsg)
    bench.ask(1, Price(time.monotonic(), 0.0, 0.3, 0.0, 0.0))
    bench.answer()
    bench.until(bench.server._show_progress)
    beat = bench.told(HeartbeatMsg)
    assert isinstance(beat, HeartbeatMsg)
    assert beat.sample.busy_s == pytest.approx(0.3, abs=0.01)
    assert beat.sample.requests == 1
    assert beat.sample.cpu_s == beat.sample.busy_s
