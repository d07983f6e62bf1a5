"""Commands over a real socket: valid and invalid messages, and peers that disconnect."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import zmq

from elastichost.errors import ProtocolError
from elastichost.wire.commands import (
    _VERBS,
    MAX_COMMAND_BYTES,
    AcceptedMsg,
    CancelMsg,
    Command,
    CommandClient,
    CommandServer,
    JoinMsg,
    ReachedMsg,
    RefusedMsg,
    ScaleMsg,
    verb_of,
)

LIMIT_S = 20.0
NO_COMMANDS = (
    [b""],
    [b'{"type":"ScaleMsg","workers":"3"}'],
    [b'{"type":"ScaleMsg","cores":3}'],
    [b"\xff"],
    [b'{"type":"CancelMsg","job":"\xff"}'],  # no UTF-8 within a text
    [b"[" * 5000],
    [b"{", b"}"],
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandServer]:
    monkeypatch.chdir(tmp_path)  # a socket's path has 108 bytes
    server = CommandServer("ipc://commands")
    try:
        yield server
    finally:
        server.close()


def received(server: CommandServer) -> tuple[bytes, ScaleMsg]:
    assert server.socket.poll(LIMIT_S * 1000)
    found = server.receive()
    assert found is not None
    return found


def test_a_command_and_its_replies(server: CommandServer) -> None:
    assert server.receive() is None
    client = CommandClient(server.address)
    client.send(ScaleMsg(workers=3, worker_cores=2))
    peer, command = received(server)
    assert command == ScaleMsg(workers=3, servers=None, worker_cores=2)
    replies = [
        AcceptedMsg("soon"),
        ReachedMsg("done", {"reached_s": 0.5, "first": {"worker-1": None}}),
        RefusedMsg("no", "why"),
    ]
    for reply in replies:
        assert server.reply(peer, reply)
    assert [client.receive(LIMIT_S) for _ in replies] == replies
    assert client.receive(0.0) is None
    client.close()


@pytest.mark.parametrize("parts", NO_COMMANDS)
def test_an_invalid_command_is_refused_and_answered(server: CommandServer, parts: list[bytes]) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(server.address)
        socket.send_multipart(parts)
        assert server.socket.poll(LIMIT_S * 1000)
        with pytest.raises(ProtocolError, match="an invalid command"):
            server.receive()
        assert socket.poll(LIMIT_S * 1000)
        assert b'"type":"RefusedMsg"' in socket.recv()


def test_a_peer_that_sends_an_oversize_command_is_disconnected(server: CommandServer) -> None:
    good = CommandClient(server.address)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        monitor = socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        socket.connect(server.address)
        socket.send(b" " * (MAX_COMMAND_BYTES + 1))
        assert monitor.poll(LIMIT_S * 1000), "the oversize message did not end the connection"
        assert server.receive() is None
        socket.disable_monitor()
        monitor.close()
    good.send(ScaleMsg(servers=2))
    assert received(server)[1] == ScaleMsg(servers=2)
    good.close()


def test_a_peer_that_is_gone_does_no_harm(server: CommandServer) -> None:
    client = CommandClient(server.address)
    client.send(ScaleMsg(workers=1))
    peer, _ = received(server)
    client.close()
    for _ in range(500):
        if not server.reply(peer, AcceptedMsg("too late")):
            return
        select.select([], [], [], 0.01)
    pytest.fail("a reply to a disconnected peer was never reported as failed")


def test_an_invalid_reply_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind("ipc://other")
        client = CommandClient("ipc://other")
        client.send(ScaleMsg(workers=1))
        assert socket.poll(LIMIT_S * 1000)
        socket.send_multipart([socket.recv_multipart()[0], b'{"type":"Perhaps"}'])
        with pytest.raises(ProtocolError, match="an invalid reply"):
            client.receive(LIMIT_S)
        client.close()


def test_every_command_has_a_verb() -> None:
    """A cause such as "scale-1.4" begins with the verb, not with the name of a class."""
    assert [verb_of(ScaleMsg()), verb_of(JoinMsg("")), verb_of(CancelMsg("a"))] == ["scale", "join", "cancel"]
    assert set(get_args(Command)) == set(_VERBS)
