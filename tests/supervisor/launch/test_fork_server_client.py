"""The launcher of this host, with a fork server that forks nothing: logs that cannot be opened, refused requests."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from elastichost.plan import ProcessId
from elastichost.supervisor.launch import fork_server_client
from elastichost.supervisor.launch.events import LogNotOpened, StartFailed
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.launch.messages import MAX_PACKET_BYTES, ForkReply, SpawnRefusedMsg

PROCESS = ProcessId("worker", 3, 1)


class Receiving:
    """Stands for a fork server, and forks nothing. Its `start` is the argument of a launcher."""

    pid = 0

    def start(self, connection: socket.socket, stderr: IO[bytes]) -> Receiving:
        self.connection = connection.dup()
        self.connection.setblocking(False)
        return self

    def kill(self) -> None:
        self.connection.close()

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def logs(self) -> list[str]:
        """The files that came with the requests since the last call."""
        found: list[str] = []
        while True:
            try:
                _, descriptors, _, _ = socket.recv_fds(self.connection, MAX_PACKET_BYTES, 4)
            except BlockingIOError:
                return found
            for descriptor in descriptors:
                found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
                os.close(descriptor)

    def say(self, reply: ForkReply) -> None:
        self.connection.send(msgspec.json.encode(reply))


@pytest.fixture
def server() -> Receiving:
    return Receiving()


@pytest.fixture
def launcher(server: Receiving) -> Iterator[LocalLauncher]:
    with LocalLauncher((), start=server.start) as opened:
        yield opened


def request(log: Path) -> SpawnRequest:
    return SpawnRequest(PROCESS, "tests:worker", b"{}", log)


def test_a_process_gets_its_log(launcher: LocalLauncher, server: Receiving, tmp_path: Path) -> None:
    launcher.spawn(request(tmp_path / "log"))
    assert (server.logs(), launcher.events()) == ([str(tmp_path / "log")], [])


def test_the_folder_of_the_logs_is_made_anew(launcher: LocalLauncher, server: Receiving, tmp_path: Path) -> None:
    launcher.spawn(request(tmp_path / "logs" / "log"))
    assert (server.logs(), launcher.events()) == ([str(tmp_path / "logs" / "log")], [])


def test_a_process_whose_log_cannot_be_opened_starts_without_it(
    launcher: LocalLauncher, server: Receiving, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("a file in the place of the folder")
    log = tmp_path / "logs" / "log"
    launcher.spawn(request(log))
    assert server.logs() == [os.devnull]
    assert launcher.events() == [LogNotOpened(PROCESS, str(log), "Not a directory", errno.ENOTDIR)]


def test_a_full_disk_is_told_with_its_number(
    launcher: LocalLauncher, server: Receiving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(log: Path) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(log))

    monkeypatch.setattr(fork_server_client, "_opened", refuses)
    launcher.spawn(request(tmp_path / "log"))
    assert server.logs() == [os.devnull]
    assert launcher.events() == [LogNotOpened(PROCESS, str(tmp_path / "log"), "No space left on device", errno.ENOSPC)]


def test_a_process_is_not_started_where_no_file_can_be_opened(
    launcher: LocalLauncher, server: Receiving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuses)
        launcher.spawn(request(tmp_path / "log"))
    assert server.logs() == []
    (failed,) = launcher.events()
    assert isinstance(failed, StartFailed)
    assert (failed.process, failed.number) == (PROCESS, errno.EMFILE) and "Too many open files" in failed.reason


def test_the_reason_of_a_refused_fork_arrives_with_its_number(
    launcher: LocalLauncher, server: Receiving, tmp_path: Path
) -> None:
    launcher.spawn(request(tmp_path / "log"))
    server.say(SpawnRefusedMsg(1, "cannot fork: no", errno.EAGAIN))
    assert launcher.events() == [StartFailed(PROCESS, "cannot fork: no", errno.EAGAIN)]
