"""Sockets of one machine: which messages a server accepts, and which it does not read."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from benchmarks.hostile.attackers import greeting, wait_closed
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import MAX_MESSAGE_BYTES, Codec
from elastichost.wire.control import ControlMessage, DrainedMsg, StopMsg
from elastichost.wire.data import DataMessage, DenseFetchMsg, DensePushedMsg
from elastichost.wire.facts import ServerAddress
from elastichost.wire.security.keys import KeyPair, new_keys
from elastichost.wire.sockets import Caller, ControlClient, ControlServer, DataClient, DataServer, wait_readable

JOB, PATIENCE_S = 7, 20.0
SERVER, WORKER, OTHER = ProcessId("server", 0, 1), ProcessId("worker", 0, 1), ProcessId("worker", 1, 1)
GREETING_BYTES = 64
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"  # of ZMTP 3.1: the last command before messages


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataServer]:
    made = DataServer(f"ipc://{tmp_path}/d", JOB, SERVER)
    yield made
    made.close()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlServer]:
    made = ControlServer(f"ipc://{tmp_path}/c", JOB)
    yield made
    made.close()


def wait_for(server: DataServer | ControlServer) -> None:
    assert wait_readable(server.sockets, PATIENCE_S)


def exactly(client_socket: socket.socket, count: int) -> bytes:
    """Reads this many bytes."""
    found = b""
    while len(found) < count:
        part = client_socket.recv(count - len(found))
        assert part, "the connection was closed"
        found += part
    return found


def shake_hands(path: str) -> socket.socket:
    """A client of ZMTP 3.1 after its handshake: it may send messages."""
    client_socket = socket.socket(socket.AF_UNIX)
    client_socket.settimeout(PATIENCE_S)
    client_socket.connect(path)
    client_socket.sendall(greeting(b"NULL"))
    exactly(client_socket, GREETING_BYTES)
    client_socket.sendall(bytes([4, len(READY)]) + READY)
    exactly(client_socket, exactly(client_socket, 2)[1])
    return client_socket


@pytest.mark.parametrize("size_bytes", [MAX_MESSAGE_BYTES + 1, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("kind", ["data", "control"])
def test_a_peer_that_announces_too_large_a_message_is_disconnected(
    request: pytest.FixtureRequest, kind: str, size_bytes: int
) -> None:
    """The connection ends before the message is read; otherwise one peer could use up the memory of the process."""
    server: DataServer | ControlServer = request.getfixturevalue(kind)
    client_socket = shake_hands(server.address.removeprefix("ipc://"))
    client_socket.sendall(b"\x02" + size_bytes.to_bytes(8, "big") + bytes(1 << 12))
    assert wait_closed([client_socket], PATIENCE_S) == 0
    assert server.receive() is None
    client_socket.close()


def test_an_announced_message_of_the_largest_size_is_read(data: DataServer) -> None:
    client_socket = shake_hands(data.address.removeprefix("ipc://"))
    client_socket.sendall(b"\x02" + (5).to_bytes(8, "big") + b"hello")
    wait_for(data)
    with pytest.raises(ProtocolError, match="a message has 1 parts"):
        data.receive()
    client_socket.close()


# --- names ------------------------------------------------------------------------------------------------------------


def dealer(address: str, name: bytes) -> zmq.Socket[bytes]:
    made = zmq.Context.instance().socket(zmq.DEALER)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.IDENTITY, name)
    made.connect(address)
    return made


@pytest.mark.parametrize("name", [b"worker-1.1/pull1", b"worker-0.10/pull1", b"worker-0.1", b"x"])
def test_a_push_or_pull_in_the_name_of_another_process_is_refused(data: DataServer, name: bytes) -> None:
    client_socket, codec = dealer(data.address, name), Codec[DataMessage](DataMessage, JOB, WORKER)
    client_socket.send_multipart([bytes(memoryview(part)) for part in codec.encode(DenseFetchMsg(request=1))])  # type: ignore[arg-type]
    wait_for(data)
    with pytest.raises(ProtocolError, match=r"in the name of worker-0\.1"):
        data.receive()
    client_socket.close()


@pytest.mark.parametrize("sender", [WORKER, None])
def test_a_control_message_in_the_name_of_another_process_is_refused(
    control: ControlServer, sender: ProcessId | None
) -> None:
    """This includes a message in the name of the supervisor."""
    client_socket, codec = dealer(control.address, b"worker-1.1"), Codec[ControlMessage](ControlMessage, JOB, sender)
    client_socket.send_multipart([bytes(memoryview(part)) for part in codec.encode(DrainedMsg())])  # type: ignore[arg-type]
    wait_for(control)
    with pytest.raises(ProtocolError, match="in the name of"):
        control.receive()
    client_socket.close()


# --- missing peers ----------------------------------------------------------------------------------------------------


def test_a_message_to_a_missing_peer_is_an_error(data: DataServer, control: ControlServer) -> None:
    with pytest.raises(ProtocolError, match=r"worker-0\.1/pull1 cannot be reached"):
        data.send(b"worker-0.1/pull1", DensePushedMsg(request=1, sequence=0, version=0, samples_applied=0))
    with pytest.raises(ProtocolError, match=r"worker-1\.1 cannot be reached"):
        control.send(OTHER, StopMsg())


def test_both_conversations_go_both_ways(data: DataServer, control: ControlServer) -> None:
    puller = DataClient(data.address, JOB, WORKER, "pull1")
    puller.send(DenseFetchMsg(request=1))
    wait_for(data)
    received = data.receive()
    assert received is not None and (received[0], received[1].sender) == (b"worker-0.1/pull1", WORKER)
    data.send(received[0], DensePushedMsg(request=1, sequence=0, version=3, samples_applied=0), [b"vector"])
    assert wait_readable(puller.sockets, PATIENCE_S)
    answer = puller.receive()
    assert answer is not None and answer.message.request == 1 and bytes(answer.frames[0]) == b"vector"
    puller.close()
    child = ControlClient(control.address, JOB, WORKER)
    child.send(DrainedMsg())
    wait_for(control)
    told = control.receive()
    assert told is not None and (told.sender, told.message) == (WORKER, DrainedMsg())
    control.send(WORKER, StopMsg())
    assert wait_readable(child.sockets, PATIENCE_S)
    order = child.receive()
    assert order is not None and order.message == StopMsg()
    child.flush(1.0)


@pytest.mark.parametrize(
    ("host", "outer", "is_local"), [(1, "tcp://127.0.0.1:9", True), (0, "", True), (0, "tcp://127.0.0.1:9", False)]
)
def test_a_caller_goes_over_the_network_only_to_other_machines(
    data: DataServer, host: int, outer: str, is_local: bool
) -> None:
    keys = new_keys()
    client = Caller(JOB, WORKER, host=1, keys=keys).connect(
        ServerAddress(0, 1, data.address, host, outer, new_keys().public), "pull1"
    )
    assert client.address == (data.address if is_local else outer)
    client.close()


@pytest.mark.parametrize(("own", "its"), [(None, new_keys().public), (new_keys(), "")], ids=["no own", "no other"])
def test_a_caller_without_a_key_cannot_connect_to_another_machine(own: KeyPair | None, its: str) -> None:
    """Without keys the connection would not be encrypted."""
    elsewhere = ServerAddress(0, 1, "ipc://nowhere", host=0, outer="tcp://127.0.0.1:9", key=its)
    with pytest.raises(ProtocolError, match=r"worker-0\.1 has no key for PS 0 on host 0"):
        Caller(JOB, WORKER, host=1, keys=own).connect(elsewhere, "pull1")


def test_a_client_drops_an_invalid_message_and_receives_the_next(data: DataServer) -> None:
    puller = DataClient(data.address, JOB, WORKER, "pull1")
    puller.send(DenseFetchMsg(request=1))
    wait_for(data)
    data.receive()
    deadline_s = time.monotonic() + PATIENCE_S
    data.sockets[0].send_multipart([b"worker-0.1/pull1", b"no header", b"no body"])
    data.send(b"worker-0.1/pull1", DensePushedMsg(request=1, sequence=0, version=3, samples_applied=0))
    while (answer := puller.receive()) is None:
        assert time.monotonic() < deadline_s
        wait_readable(puller.sockets, 0.1)
    assert answer.message.request == 1
    puller.close()
