"""The fork server tells why it could not fork."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest

from elastichost.supervisor.launch.fork_server import ForkServer
from elastichost.supervisor.launch.messages import MAX_PACKET_BYTES, ForkReply, SpawnMsg, SpawnRefusedMsg

Made = TypeVar("Made")


def failing_at(number: int, call: Callable[[], Made], error: int) -> Callable[[], Made]:
    """The call, which fails the given time (1: at once)."""
    calls: list[int] = []

    def counted() -> Made:
        calls.append(1)
        if len(calls) == number:
            raise OSError(error, os.strerror(error))
        return call()

    return counted


@pytest.mark.parametrize("failing", [1, 2])
def test_a_fork_that_fails_is_refused_with_its_error(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second fork happens in an intermediate process, which ends with it."""
    monkeypatch.setattr(os, "fork", failing_at(failing, os.fork, errno.EAGAIN))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(os.devnull, "wb") as log:
        ForkServer(theirs, os.getpid())._spawn(SpawnMsg(7, "worker-0", "tests:worker", "{}", (), {}), [log.fileno()])
        reply = msgspec.json.decode(ours.recv(MAX_PACKET_BYTES), type=ForkReply)
    text = f"cannot fork: [Errno {errno.EAGAIN}] Resource temporarily unavailable"
    assert reply == SpawnRefusedMsg(7, text, errno.EAGAIN)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_pipe_that_fails_leaves_no_descriptor_open(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has used up its descriptors must not lose more of them with each try."""
    monkeypatch.setattr(os, "pipe", failing_at(failing, os.pipe, errno.EMFILE))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(os.devnull, "wb") as log:
        before = os.listdir("/proc/self/fd")
        server = ForkServer(theirs, os.getpid())
        server._spawn(SpawnMsg(7, "worker-0", "tests:worker", "{}", (), {}), [log.fileno()])
        assert os.listdir("/proc/self/fd") == before
        reply = msgspec.json.decode(ours.recv(MAX_PACKET_BYTES), type=ForkReply)
    assert isinstance(reply, SpawnRefusedMsg) and reply.number == errno.EMFILE
