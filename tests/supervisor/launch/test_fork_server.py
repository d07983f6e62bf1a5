"""The fork server tells why it could not fork."""

from __future__ import annotations

import errno
import os
import socket

import msgspec
import pytest

from elastichost.supervisor.launch.fork_server import ForkServer
from elastichost.supervisor.launch.messages import MAX_PACKET_BYTES, ForkReply, SpawnMsg, SpawnRefusedMsg


@pytest.mark.parametrize("failing", [1, 2])
def test_a_fork_that_fails_is_refused_with_its_error(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second fork happens in an intermediate process, which ends with it."""
    fork, forks = os.fork, list[int]()

    def counted() -> int:
        forks.append(1)
        if len(forks) == failing:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", counted)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(os.devnull, "wb") as log:
        ForkServer(theirs, os.getpid())._spawn(SpawnMsg(7, "worker-0", "tests:worker", "{}", (), {}), [log.fileno()])
        reply = msgspec.json.decode(ours.recv(MAX_PACKET_BYTES), type=ForkReply)
    text = f"cannot fork: [Errno {errno.EAGAIN}] Resource temporarily unavailable"
    assert reply == SpawnRefusedMsg(7, text, errno.EAGAIN)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_pipe_that_fails_leaves_no_descriptor_open(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has used up its descriptors must not lose more of them with each try."""
    pipe, pipes = os.pipe, list[int]()

    def counted() -> tuple[int, int]:
        pipes.append(1)
        if len(pipes) == failing:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pipe()

    monkeypatch.setattr(os, "pipe", counted)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(os.devnull, "wb") as log:
        before = os.listdir("/proc/self/fd")
        server = ForkServer(theirs, os.getpid())
        server._spawn(SpawnMsg(7, "worker-0", "tests:worker", "{}", (), {}), [log.fileno()])
        assert os.listdir("/proc/self/fd") == before
        reply = msgspec.json.decode(ours.recv(MAX_PACKET_BYTES), type=ForkReply)
    assert isinstance(reply, SpawnRefusedMsg) and reply.number == errno.EMFILE
