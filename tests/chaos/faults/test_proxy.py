"""A fault proxy between the real sockets of a supervisor and a worker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastichost.chaos.faults.message_faults import MessageRates
from elastichost.chaos.faults.proxy import FaultProxy
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.control import DrainMsg, LeaseRequestMsg, MembershipMsg
from elastichost.wire.sockets import VIA_SUFFIX, VIA_VARIABLE, ControlClient, ControlServer

WORKER = ProcessId("worker", 0, 1)
MESSAGES = 200
LAST = 1e9  # a rate that no other request has


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of the sockets, with proxies switched on."""
    monkeypatch.setenv(VIA_VARIABLE, "1")
    with tempfile.TemporaryDirectory(prefix="ehp-") as name:
        yield Path(name)


class Pair:
    """The sockets of a supervisor and a worker, between which a test starts a proxy."""

    def __init__(self, sockets: Path) -> None:
        self.server = ControlServer(f"ipc://{sockets}/control", 5)
        self.client = ControlClient(f"ipc://{sockets}/control", 5, WORKER)

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def received(self, until: float) -> list[float]:
        """Rates of the lease requests that arrived, up to and including `until`."""
        found: list[float] = []
        while until not in found:
            self.server.poll(1.0)
            if (rate := self.next_rate()) is not None:
                found.append(rate)
        return found

    def next_rate(self) -> float | None:
        """The rate of a lease request that has arrived; None: none has, or it was refused."""
        try:
            envelope = self.server.receive()
        except ProtocolError:
            return None
        return envelope.message.samples_per_s if envelope and isinstance(envelope.message, LeaseRequestMsg) else None


@pytest.fixture
def pair(sockets: Path) -> Iterator[Pair]:
    found = Pair(sockets)
    yield found
    found.close()


def send_all(pair: Pair) -> list[float]:
    """Sends MESSAGES lease requests and a last one. Returns the rates that arrived before the last one."""
    for number in range(MESSAGES):
        pair.client.send(LeaseRequestMsg(samples_per_s=float(number)))
    pair.client.send(LeaseRequestMsg(samples_per_s=LAST))
    return pair.received(LAST)[:-1]


def test_without_faults_everything_arrives_in_order_in_both_directions(sockets: Path, pair: Pair) -> None:
    with FaultProxy(sockets, 1, MessageRates()) as proxy:
        assert send_all(pair) == [float(number) for number in range(MESSAGES)]
        pair.server.send(WORKER, DrainMsg())
        while pair.client.receive() is None:
            pass
    assert proxy.counts["LeaseRequestMsg", "pass"] == MESSAGES + 1
    assert proxy.counts["DrainMsg", "pass"] == 1
    assert (sockets / f"control{VIA_SUFFIX}").exists()


def test_duplicated_messages_arrive_twice(sockets: Path, pair: Pair) -> None:
    with FaultProxy(sockets, 1, MessageRates(duplicate=1.0)):
        found = send_all(pair)
    assert found == [float(number) for number in range(MESSAGES) for _ in range(2)]


def test_delayed_messages_keep_their_order(sockets: Path, pair: Pair) -> None:
    everything = [float(number) for number in range(MESSAGES)]
    with FaultProxy(sockets, 1, MessageRates(delay=0.1)) as proxy:
        assert send_all(pair) == everything
    assert proxy.counts["LeaseRequestMsg", "delay"] > 0


def test_reordered_messages_arrive_in_another_order(sockets: Path, pair: Pair) -> None:
    with FaultProxy(sockets, 1, MessageRates(reorder=0.5)):
        for number in range(MESSAGES):
            pair.client.send(LeaseRequestMsg(samples_per_s=float(number)))
        found = _drain(pair, MESSAGES)
    assert sorted(found) == [float(number) for number in range(MESSAGES)]
    assert found != sorted(found)


def _drain(pair: Pair, count: int) -> list[float]:
    """Returns the rates of `count` lease requests."""
    found: list[float] = []
    while len(found) < count:
        pair.server.poll(1.0)
        if (rate := pair.next_rate()) is not None:
            found.append(rate)
    return found


def test_only_messages_of_the_named_type_are_dropped(sockets: Path, pair: Pair) -> None:
    with FaultProxy(sockets, 1, MessageRates(drop=1.0, only=("MembershipMsg",))) as proxy:
        assert len(send_all(pair)) == MESSAGES
        pair.server.send(WORKER, MembershipMsg(1, ()))
        pair.server.send(WORKER, DrainMsg())
        while (envelope := pair.client.receive()) is None:
            pass
    assert isinstance(envelope.message, DrainMsg)
    assert proxy.counts["MembershipMsg", "drop"] == 1


def test_corrupted_messages_are_refused_and_never_misread(sockets: Path, pair: Pair) -> None:
    """One bit of a header or body is flipped: the message is refused, unless no process reads that bit."""
    with FaultProxy(sockets, 1, MessageRates(corrupt=0.5)) as proxy:
        for number in range(MESSAGES):
            pair.client.send(LeaseRequestMsg(samples_per_s=float(number)))
        found, refused = [], 0
        while len(found) + refused < MESSAGES:
            pair.server.poll(1.0)
            try:
                while (envelope := pair.server.receive()) is not None:
                    assert isinstance(envelope.message, LeaseRequestMsg)
                    found.append(envelope.message.samples_per_s)
            except ProtocolError:
                refused += 1
    assert set(found) <= {float(number) for number in range(MESSAGES)}
    assert refused > 0.3 * proxy.counts["LeaseRequestMsg", "corrupt"]


def test_a_partition_is_one_way(sockets: Path, pair: Pair) -> None:
    with FaultProxy(sockets, 1, MessageRates()) as proxy:
        pair.client.send(LeaseRequestMsg(samples_per_s=LAST))
        pair.received(LAST)
        proxy.partition("supervisor", "worker", 3600.0)
        pair.server.send(WORKER, DrainMsg())
        assert len(send_all(pair)) == MESSAGES
        assert pair.client.receive() is None
    assert proxy.counts["DrainMsg", "cut off"] == 1
