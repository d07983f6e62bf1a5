"""Messages through a gate: frames in short parts, names that no other peer can take, bounded queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import MAX_MESSAGE_BYTES, Codec, Envelope
from elastichost.wire.data import DataMessage, DenseFetchMsg, DensePushedMsg, PushMsg
from elastichost.wire.security.keys import AllowList, Gate, Pass, gate_at, new_keys, present
from elastichost.wire.security.tcp_router import MAX_ROUTES, PART_BYTES, OuterRouter, cut, join
from elastichost.wire.sockets import DATA_WAITING, DataClient, DataServer, wait_readable

JOB = 7
PATIENCE_S = 20.0
ROUNDS = 300
WORKER, OTHER, SERVER = ProcessId("worker", 0, 1), ProcessId("worker", 1, 1), ProcessId("server", 0, 1)


@given(st.lists(st.sampled_from([0, 1, 36, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES]), max_size=4))
def test_split_parts_are_joined(sizes: list[int]) -> None:
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    pieces = [memoryview(piece) for piece in cut(parts)]  # type: ignore[arg-type]
    assert all(piece.nbytes <= PART_BYTES for piece in pieces)
    assert [bytes(part) for part in join(pieces)] == parts


def test_pieces_that_cut_cannot_have_made_are_refused() -> None:
    with pytest.raises(ProtocolError, match="within a frame"):
        join([memoryview(bytes(PART_BYTES))])
    with pytest.raises(ProtocolError, match="a gate received a part of 65537 bytes"):
        join([memoryview(bytes(PART_BYTES + 1))])


def test_a_message_of_many_parts_is_bounded_as_a_whole() -> None:
    part = memoryview(bytes(PART_BYTES - 1))  # the same memory each time
    fitting = MAX_MESSAGE_BYTES // part.nbytes
    assert len(join([part] * fitting)) == fitting
    with pytest.raises(ProtocolError, match=f"larger than {MAX_MESSAGE_BYTES} bytes"):
        join([part] * (fitting + 1))


@dataclass(slots=True)
class GatedServer:
    """A PS' data socket with a gate."""

    allowed: AllowList
    server: DataServer
    key: str
    clients: list[DataClient]

    def connect_allowed(self, process: ProcessId, channel: str, shown: Pass | None = None) -> DataClient:
        """Connects a channel of a process; without a pass, with new keys that it puts on the list."""
        if shown is None:
            keys = new_keys()
            self.allowed.allow(keys.public, str(process))
            shown = Pass(keys, self.key)
        client = DataClient(self.server.outer_address, JOB, process, channel, shown)
        self.clients.append(client)
        return client

    def receive(self) -> tuple[bytes, Envelope[DataMessage]]:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if (received := self.server.receive()) is not None:
                return received
            wait_readable(self.server.sockets, 0.05)
        raise AssertionError("the server received no message")


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedServer]:
    keys, allowed = new_keys(), AllowList()
    server = DataServer(f"ipc://{tmp_path}/d", JOB, SERVER, Gate(gate_at("127.0.0.1"), keys, allowed))
    made = GatedServer(allowed, server, keys.public, [])
    yield made
    for client in made.clients:
        client.close()
    server.close()


def test_large_frames_go_both_ways(gated: GatedServer) -> None:
    client = gated.connect_allowed(WORKER, "push")
    frames = [bytes(range(256)) * 4000, b"", bytes(PART_BYTES)]
    client.send(PushMsg(request=1, sequence=1, shard_map_epoch=1, counts=(1,)), frames)
    peer, envelope = gated.receive()
    assert peer == b"worker-0.1/push"
    assert [bytes(frame) for frame in envelope.frames] == frames
    gated.server.send(peer, DensePushedMsg(request=1, sequence=1, version=1, samples_applied=0), frames)
    assert wait_readable(client.sockets, PATIENCE_S)
    answer = client.receive()
    assert answer is not None and [bytes(frame) for frame in answer.frames] == frames


def test_a_name_cannot_be_taken_before_its_owner_connects(gated: GatedServer) -> None:
    """No peer can guess the routing id of a client: a peer that uses another suffix does not keep the client out."""
    keys = new_keys()
    gated.allowed.allow(keys.public, str(OTHER))
    squatter = zmq.Context.instance().socket(zmq.DEALER)
    squatter.setsockopt(zmq.LINGER, 0)
    squatter.setsockopt(zmq.IDENTITY, b"worker-0.1/pull1")
    present(Pass(keys, gated.key), squatter)
    squatter.connect(gated.server.outer_address)
    squatter.send(b"I was first")
    with pytest.raises(ProtocolError, match=r"has the key of worker-1.1"):
        gated.receive()
    owner = gated.connect_allowed(WORKER, "pull1")
    owner.send(DenseFetchMsg(request=1))
    assert gated.receive()[0] == b"worker-0.1/pull1"
    squatter.close()


def test_a_second_connection_with_a_name_does_not_get_its_answers(gated: GatedServer) -> None:
    keys = new_keys()
    gated.allowed.allow(keys.public, str(WORKER))
    first, second = (gated.connect_allowed(WORKER, "pull1", Pass(keys, gated.key)) for _ in range(2))
    first.send(DenseFetchMsg(request=1))
    peer, _ = gated.receive()
    second.send(DenseFetchMsg(request=2))
    with pytest.raises(ProtocolError, match="is connected already"):
        gated.receive()
    gated.server.send(peer, DensePushedMsg(request=1, sequence=0, version=0, samples_applied=0))
    assert wait_readable(first.sockets, PATIENCE_S)
    assert second.receive() is None


def test_conversations_with_one_incarnation_are_bounded(gated: GatedServer) -> None:
    keys = new_keys()
    gated.allowed.allow(keys.public, str(WORKER))
    peers = []
    for number in range(MAX_ROUTES + 1):
        gated.connect_allowed(WORKER, f"c{number}", Pass(keys, gated.key)).send(DenseFetchMsg(request=1))
        peers.append(gated.receive()[0])
    answer = DensePushedMsg(request=1, sequence=0, version=0, samples_applied=0)
    with pytest.raises(ProtocolError, match="cannot be reached"):
        gated.server.send(peers[0], answer)
    gated.server.send(peers[1], answer)


def test_few_messages_are_kept_for_a_peer_that_does_not_read(gated: GatedServer) -> None:
    keys = new_keys()
    gated.allowed.allow(keys.public, str(WORKER))
    silent = zmq.Context.instance().socket(zmq.DEALER)
    silent.setsockopt(zmq.LINGER, 0)
    silent.setsockopt(zmq.RCVHWM, 1)
    silent.setsockopt(zmq.IDENTITY, b"worker-0.1/deaf#0")
    present(Pass(keys, gated.key), silent)
    other = gated.connect_allowed(WORKER, "dense", Pass(keys, gated.key))
    silent.connect(gated.server.outer_address)
    codec: Codec[DataMessage] = Codec(DataMessage, JOB, WORKER)
    silent.send_multipart([bytes(memoryview(part)) for part in codec.encode(DenseFetchMsg(request=1))])  # type: ignore[arg-type]
    peer, _ = gated.receive()
    answer, frame = DensePushedMsg(request=1, sequence=0, version=0, samples_applied=0), bytes(8 << 20)
    before_bytes, sent = psutil.Process().memory_info().rss, 0

    def answer_on() -> None:
        nonlocal sent
        for _ in range(1000):
            gated.server.send(peer, answer, [frame])
            sent += 1

    with pytest.raises(ProtocolError, match="cannot be reached"):
        answer_on()
    assert sent <= DATA_WAITING.to_peer + 8, "more messages are queued than the limit and the sockets' buffers allow"
    assert psutil.Process().memory_info().rss - before_bytes < 256 << 20
    other.send(DenseFetchMsg(request=1))
    assert gated.receive()[0] == b"worker-0.1/dense", "messages of other peers are received"
    silent.close()


def test_a_part_longer_than_allowed_is_not_read_to_its_end(gated: GatedServer) -> None:
    """An admitted peer that sends such a part is disconnected; others are unaffected."""
    keys = new_keys()
    gated.allowed.allow(keys.public, str(WORKER))
    sender = zmq.Context.instance().socket(zmq.DEALER)
    sender.setsockopt(zmq.LINGER, 0)
    sender.setsockopt(zmq.IDENTITY, b"worker-0.1/long#0")
    present(Pass(keys, gated.key), sender)
    monitor = sender.get_monitor_socket(zmq.Event.DISCONNECTED)
    sender.connect(gated.server.outer_address)
    sender.send(bytes(2 * PART_BYTES))
    assert monitor.poll(int(PATIENCE_S * 1000)), "the peer was not disconnected"
    assert gated.server.receive() is None
    gated.connect_allowed(WORKER, "dense", Pass(keys, gated.key)).send(DenseFetchMsg(request=1))
    assert gated.receive()[0] == b"worker-0.1/dense"
    sender.disable_monitor()
    monitor.close()
    sender.close()


def test_a_peer_that_has_read_every_answer_gets_the_next_one(gated: GatedServer) -> None:
    """ZeroMQ updates its count of unread messages only now and then. This peer never has more unread answers than the
    limit, so none may be lost: a peer waits a second for a lost answer before it asks again."""
    client = gated.connect_allowed(WORKER, "dense")
    client.send(DenseFetchMsg(request=1))
    peer, _ = gated.receive()
    answer = DensePushedMsg(request=1, sequence=0, version=0, samples_applied=0)
    for _ in range(ROUNDS):
        for _ in range(DATA_WAITING.to_peer):
            gated.server.send(peer, answer)
        for _ in range(DATA_WAITING.to_peer):
            assert wait_readable(client.sockets, PATIENCE_S)
            assert client.receive() is not None


def test_a_gate_on_ipv6(tmp_path: Path) -> None:
    keys, of_worker, allowed = new_keys(), new_keys(), AllowList()
    allowed.allow(of_worker.public, str(WORKER))
    try:
        server = DataServer(f"ipc://{tmp_path}/d", JOB, SERVER, Gate(gate_at("::1"), keys, allowed))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    assert server.outer_address.startswith("tcp://[::1]:")
    client = DataClient(server.outer_address, JOB, WORKER, "pull", Pass(of_worker, keys.public))
    client.send(DenseFetchMsg(request=1))
    assert GatedServer(allowed, server, keys.public, []).receive()[0] == b"worker-0.1/pull"
    client.close()
    server.close()


def test_an_address_in_use_is_an_error(gated: GatedServer) -> None:
    with pytest.raises(OSError, match="in use"):
        OuterRouter(Gate(gated.server.outer_address, new_keys(), AllowList()), DATA_WAITING, zmq.Context.instance())
