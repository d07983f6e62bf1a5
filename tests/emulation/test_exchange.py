"""Requests to all PS over real sockets: their answers, and what happens when a PS refuses or the shard map changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elastichost.config.sections.emulate import NewIdsSettings
from elastichost.emulation import exchange as module
from elastichost.emulation.exchange import DONE, Call, Exchange
from elastichost.emulation.model import TABLES, emulated_model
from elastichost.emulation.prices import Price, Pricing
from elastichost.emulation.scenarios import scenario
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.sharding import even_shard_map
from elastichost.wire.codec import Envelope
from elastichost.wire.data import DataMessage, PulledMsg, PullMsg, RetryMsg
from elastichost.wire.facts import ServerAddress
from elastichost.wire.sockets import Caller, DataServer
from elastichost.worker.channels.channel import DirectoryHolder, FencedError
from elastichost.worker.channels.routing import Directory

WORKER, JOB = ProcessId("worker", 3, 1), 7
LIMIT_S = 10.0


class Cloud:
    """PS that only have sockets, a shard map over them, and a worker's exchange."""

    def __init__(self, folder: Path, servers: int, new_ids: NewIdsSettings) -> None:
        self.new_ids = new_ids
        self.sockets = {
            index: DataServer(f"ipc://{folder}/{index}", JOB, ProcessId("server", index, 1)) for index in range(servers)
        }
        self.holder = DirectoryHolder(Caller(JOB, WORKER))
        pricing = Pricing(scenario("server_bound"), np.random.default_rng(1))
        self.exchange = Exchange(self.holder, pricing, 0.0, new_ids)

    def publish(self, epoch: int, owners: tuple[int, ...]) -> None:
        """Gives the worker a shard map that divides the buckets evenly among `owners`."""
        tables = emulated_model(self.new_ids).tables
        of_tables = even_shard_map(tables, owners, epoch).owners
        addresses = {index: ServerAddress(index, 1, socket.address) for index, socket in self.sockets.items()}
        arrays = tuple(np.array(row, np.uint16) for row in of_tables)
        self.holder.publish(Directory(epoch, {index: addresses[index] for index in owners}, owners[0], arrays))

    def received(self, server: int) -> tuple[bytes, Envelope[DataMessage]]:
        deadline_s = time.monotonic() + LIMIT_S
        while (received := self.sockets[server].receive()) is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
        return received

    def answer(self, server: int, done_s: float) -> PullMsg:
        """Answers the next pull of a PS, as done at done_s. Returns the pull."""
        peer, envelope = self.received(server)
        assert isinstance(envelope.message, PullMsg)
        self.sockets[server].send(peer, PulledMsg(envelope.message.request), (b"", DONE.pack(done_s)))
        return envelope.message

    def refuse(self, server: int, *, final: bool = False) -> None:
        peer, envelope = self.received(server)
        self.sockets[server].send(peer, RetryMsg(envelope.message.request, "another map", 1, final=final))

    def collect(self) -> None:
        self.exchange.collect({client.socket for client in self.exchange.clients})

    def collect_until(self, call: Call) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not call.is_done:
            assert time.monotonic() < deadline_s
            self.collect()
            time.sleep(0.001)

    def close(self) -> None:
        self.exchange.close()
        for socket in self.sockets.values():
            socket.close()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, 3, NewIdsSettings())
    made.publish(1, (0, 1, 2))
    yield made
    made.close()


def test_a_call_is_done_when_the_last_answer_has_come(cloud: Cloud) -> None:
    sent_s = time.monotonic()
    call = cloud.exchange.begin("pull", 100, sent_s)
    asked = [cloud.answer(server, sent_s + late_s) for server, late_s in ((0, 3.0), (2, 7.0))]
    cloud.collect()
    assert not call.is_done
    asked.append(cloud.answer(1, sent_s + 5.0))
    cloud.collect_until(call)
    assert call.done_s == sent_s + 7.0
    assert [sum(message.counts) for message in asked] == [TABLES // 3] * 3
    assert not any(message.create or message.weights for message in asked)


def test_requests_carry_their_price_and_pushes_no_keys(cloud: Cloud) -> None:
    call = cloud.exchange.begin("push", 2048, 5.0)
    for server in range(3):
        _, envelope = cloud.received(server)
        assert isinstance(envelope.message, PullMsg) and set(envelope.message.counts) == {0}
        price = Price.decode(envelope.frames[1])
        assert (price.sent_s, price.latency_s) == (5.0, scenario("server_bound").latency_s)
        assert price.service_s > 0 and price.in_s > 0 and price.out_s == 0
    cloud.exchange.forget(call)
    assert call.is_done


def test_after_a_newer_map_every_ps_is_asked_again_and_old_answers_are_ignored(cloud: Cloud) -> None:
    call = cloud.exchange.begin("pull", 100, time.monotonic())
    cloud.answer(0, 1e9)
    late = [cloud.received(server) for server in (1, 2)]
    cloud.publish(2, (0, 1))
    cloud.collect()
    for server, (peer, envelope) in zip((1, 2), late, strict=True):
        cloud.sockets[server].send(peer, PulledMsg(envelope.message.request), (b"", DONE.pack(2e9)))
    answered = [cloud.answer(server, call.sent_s + 1.0) for server in (0, 1)]
    cloud.collect_until(call)
    assert {message.shard_map_epoch for message in answered} == {2}
    assert call.epoch == 2


def test_a_ps_that_has_another_map_is_asked_again_soon(cloud: Cloud) -> None:
    call = cloud.exchange.begin("pull", 100, time.monotonic())
    cloud.refuse(1)
    for server in (0, 2):
        cloud.answer(server, call.sent_s)
    deadline_s = time.monotonic() + LIMIT_S
    while call.retry_s is None or not call.waiting:  # the refusal has come
        cloud.collect()
        assert time.monotonic() < deadline_s
    first = set(call.waiting)
    while set(call.waiting) & first:
        cloud.collect()
        assert time.monotonic() < deadline_s
    for server in range(3):
        cloud.answer(server, call.sent_s)
    cloud.collect_until(call)


def test_a_request_without_an_answer_is_sent_again_unchanged(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    class AtOnce(module.Resend):
        def is_due(self, now_s: float) -> bool:
            return True

    monkeypatch.setattr(module, "Resend", AtOnce)
    call = cloud.exchange.begin("pull", 100, time.monotonic())
    for server in (0, 1):
        cloud.answer(server, call.sent_s)
    _, first = cloud.received(2)
    deadline_s = time.monotonic() + LIMIT_S
    while len(call.waiting) > 1:
        cloud.collect()
        assert time.monotonic() < deadline_s
    cloud.collect()
    _, again = cloud.received(2)
    assert again.message == first.message
    assert bytes(again.frames[1]) == bytes(first.frames[1])


def test_a_final_refusal_raises_a_fenced_error(cloud: Cloud) -> None:
    call = cloud.exchange.begin("pull", 100, time.monotonic())
    cloud.refuse(0, final=True)
    with pytest.raises(FencedError):
        cloud.collect_until(call)


def test_an_answer_of_a_ps_that_is_not_emulated_is_an_error(cloud: Cloud) -> None:
    call = cloud.exchange.begin("pull", 100, time.monotonic())
    peer, envelope = cloud.received(0)
    cloud.sockets[0].send(peer, PulledMsg(envelope.message.request), (b"",))
    with pytest.raises(ProtocolError, match="does not answer as an emulated PS"):
        cloud.collect_until(call)


def test_new_ids_are_created_by_the_ps_that_own_their_buckets(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, 2, NewIdsSettings(factor=1.0))
    cloud.publish(1, (0, 1))
    keys = np.arange(1, 41, dtype=np.int64)
    call = cloud.exchange.begin("pull", 100, time.monotonic(), keys)
    asked = []
    for server in (0, 1):
        _, envelope = cloud.received(server)
        assert isinstance(envelope.message, PullMsg) and envelope.message.create
        new = envelope.message.counts[TABLES]
        asked += np.frombuffer(envelope.frames[0], np.int64)[-new:].tolist() if new else []
    assert sorted(asked) == keys.tolist()
    cloud.exchange.forget(call)
    cloud.close()
