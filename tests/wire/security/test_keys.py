"""Which keys a gate admits, and which process each key belongs to, with real sockets on the loopback interface."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import Envelope
from elastichost.wire.control import ControlMessage, HelloMsg, StopMsg
from elastichost.wire.security.keys import AllowList, Gate, KeyPair, Pass, new_keys
from elastichost.wire.sockets import ControlClient, ControlServer, DataClient, DataServer, wait_readable

JOB = 7
PATIENCE_S = 20.0
# A peer that is not admitted causes no event, so a test waits until a peer that connected later has been received.
WORKER, OTHER, SERVER = ProcessId("worker", 0, 1), ProcessId("worker", 1, 1), ProcessId("server", 0, 1)


def hello(process: ProcessId) -> HelloMsg:
    return HelloMsg(process.role, process.index, process.incarnation, pid=1)


@dataclass(slots=True)
class GatedServer:
    """A supervisor's control socket with a gate, and clients."""

    allowed: AllowList
    keys: KeyPair
    server: ControlServer
    clients: list[ControlClient] = field(default_factory=list)

    def connect(self, process: ProcessId, shown: Pass | None, address: str = "") -> ControlClient:
        client = ControlClient(address or self.server.outer_address, JOB, process, shown)
        self.clients.append(client)
        return client

    def connect_allowed(self, process: ProcessId) -> ControlClient:
        """Puts new keys of a process on the list, and connects it."""
        keys = new_keys()
        self.allowed.allow(keys.public, str(process))
        return self.connect(process, Pass(keys, self.keys.public))

    def receive(self) -> Envelope[ControlMessage]:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if (envelope := self.server.receive()) is not None:
                return envelope
            self.server.poll(0.05)
        raise AssertionError("the server received no message")


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedServer]:
    keys, allowed = new_keys(), AllowList()
    server = ControlServer(f"ipc://{tmp_path}/c", JOB, Gate("tcp://127.0.0.1:*", keys, allowed))
    made = GatedServer(allowed, keys, server)
    yield made
    for client in made.clients:
        client.close()
    server.close()


def test_an_admitted_process_is_answered(gated: GatedServer) -> None:
    client = gated.connect_allowed(WORKER)
    client.send(hello(WORKER))
    assert gated.receive().sender == WORKER
    gated.server.send(WORKER, StopMsg())
    assert wait_readable([client.socket], PATIENCE_S)
    answer = client.receive()
    assert answer is not None and isinstance(answer.message, StopMsg)


def test_local_peers_need_no_key_and_all_peers_are_answered(gated: GatedServer) -> None:
    inner, outer = gated.connect(OTHER, None, gated.server.address), gated.connect_allowed(WORKER)
    for client, process in ((inner, OTHER), (outer, WORKER)):
        client.send(hello(process))
        assert gated.receive().sender == process
    for client, process in ((inner, OTHER), (outer, WORKER)):
        gated.server.send(process, StopMsg())
        assert wait_readable([client.socket], PATIENCE_S)


@pytest.mark.parametrize("stranger", ["another key", "no key", "the key of another server"])
def test_other_keys_are_not_admitted(gated: GatedServer, stranger: str) -> None:
    known = new_keys()
    gated.allowed.allow(known.public, str(OTHER))
    shown = {
        "another key": Pass(new_keys(), gated.keys.public),
        "no key": None,
        "the key of another server": Pass(known, new_keys().public),
    }[stranger]
    gated.connect(OTHER, shown).send(hello(OTHER))
    admitted = gated.connect_allowed(WORKER)
    for _ in range(3):
        admitted.send(hello(WORKER))
        assert gated.receive().sender == WORKER
    with pytest.raises(ProtocolError, match="cannot be reached"):
        gated.server.send(OTHER, StopMsg())


def test_a_key_belongs_to_one_process(gated: GatedServer) -> None:
    keys = new_keys()
    gated.allowed.allow(keys.public, str(WORKER))
    gated.connect(OTHER, Pass(keys, gated.keys.public)).send(hello(OTHER))
    with pytest.raises(ProtocolError, match=r"b'worker-1.1' has the key of worker-0.1"):
        gated.receive()


def test_messages_with_a_revoked_key_are_refused(gated: GatedServer) -> None:
    client = gated.connect_allowed(WORKER)
    client.send(hello(WORKER))
    assert gated.receive().sender == WORKER
    gated.allowed.revoke(str(WORKER))
    client.send(hello(WORKER))
    with pytest.raises(ProtocolError, match="the key of no admitted process"):
        gated.receive()


def test_channels_of_a_worker_share_its_key(tmp_path: Path) -> None:
    keys, of_worker, allowed = new_keys(), new_keys(), AllowList()
    allowed.allow(of_worker.public, str(WORKER))
    server = DataServer(f"ipc://{tmp_path}/d", JOB, SERVER, Gate("tcp://127.0.0.1:*", keys, allowed))
    shown = Pass(of_worker, keys.public)
    clients = [DataClient(server.outer_address, JOB, WORKER, channel, shown) for channel in ("pull", "dense")]
    from elastichost.wire.data import DenseFetchMsg

    seen = set[bytes]()
    for client in clients:
        client.send(DenseFetchMsg(request=1))
    deadline_s = time.monotonic() + PATIENCE_S
    while len(seen) < 2 and time.monotonic() < deadline_s:
        if (received := server.receive()) is not None:
            seen.add(received[0])
    assert seen == {b"worker-0.1/pull", b"worker-0.1/dense"}
    for client in clients:
        client.close()
    server.close()


def test_an_address_of_another_machine_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="assign requested address"):
        ControlServer(f"ipc://{tmp_path}/c", JOB, Gate("tcp://192.0.2.1:*", new_keys(), AllowList()))


def test_a_secret_is_not_shown() -> None:
    keys = new_keys()
    assert keys.secret not in repr(keys) and keys.secret not in repr(Pass(keys, keys.public))
    assert (len(keys.public), len(keys.secret)) == (40, 40)
