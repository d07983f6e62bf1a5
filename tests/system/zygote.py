"""A process that has imported the libraries of a fork server, and forks supervisors. Their fork servers, and their
agents on this machine, are forked too and need not import them.

Importing torch takes 4 s of a core, for each of a hundred runs. Apart from the imports, a forked supervisor is the same
as a new one: the supervisor and its fork server are separate processes with one thread each. Orphaned processes become
children of this process, so that it can find every process that outlives its run.

    python -m tests.system.zygote DESCRIPTOR
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

from elastichost.host.prctl import set_child_subreaper
from elastichost.host.priority import begin_session
from elastichost.supervisor.launch.fork_server import _prepare as prepare
from elastichost.supervisor.launch.messages import PrepareMsg
from elastichost.supervisor.launch.servers import (
    ForkedServer,
    begin_anew,
    end_with,
    fork_a_server,
    fork_or_start,
    fork_server_environment,
)
from elastichost.supervisor.remote.agent_launcher import start_agent

__all__ = ["Forked", "Zygote"]

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 1 << 16


# --- in the test process --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Forked:
    """A forked supervisor with the interface of `subprocess.Popen`."""

    pid: int
    stderr: int
    zygote: Zygote
    returncode: int | None = None
    _said: list[bytes] = field(default_factory=list)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.zygote.exit_code(self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        self.communicate(timeout=timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]:
        """Waits until the supervisor ends. Raises subprocess.TimeoutExpired."""
        deadline_s = time.monotonic() + (timeout or 1e9)
        while self.poll() is None or self.stderr >= 0:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("a forked supervisor", timeout or 0.0)
            watched = [self.zygote.connection.fileno(), *([self.stderr] if self.stderr >= 0 else [])]
            readable = _readable(watched, 0.5)
            if self.stderr in readable:
                self._read()
            elif self.returncode is not None and self.stderr >= 0:
                os.close(self.stderr)  # a fork server that keeps the arena for a resume still has it open
                self.stderr = -1
        return "", b"".join(self._said).decode(errors="replace")

    def _read(self) -> None:
        data = os.read(self.stderr, MAX_BYTES)
        self._said.append(data)
        if not data:
            os.close(self.stderr)
            self.stderr = -1


class Zygote:
    """The client in the test process: one for a whole test session. The zygote ends when the client closes."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.zygote", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
                env=fork_server_environment(),
                start_new_session=True,
            )
        self._codes: dict[int, int] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, module: str, arguments: list[str]) -> Forked:
        """Runs `python -m module arguments...` in the project's root, with this process' environment."""
        reading, writing = os.pipe()
        request = {"module": module, "arguments": arguments, "environment": dict(os.environ)}
        rights = array.array("i", [writing]).tobytes()
        self.connection.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(writing)
        while "pid" not in (said := json.loads(self.connection.recv(MAX_BYTES) or b'{"pid": 0}')):
            self._codes[said["ended"]] = said["code"]
        assert said["pid"], "the zygote has ended"
        return Forked(said["pid"], reading, self)

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a supervisor; None if it has not ended."""
        while True:
            try:
                said = json.loads(self.connection.recv(MAX_BYTES, socket.MSG_DONTWAIT) or b"{}")
            except BlockingIOError:
                return self._codes.pop(pid, None)
            assert said, "the zygote has ended"
            self._codes[said["ended"]] = said["code"]

    def close(self) -> None:
        self.connection.close()
        self._process.wait(20)


# --- the zygote -------------------------------------------------------------------------------------------------------


def _supervise(request: dict[str, Any], stderr: int) -> NoReturn:
    """Runs the requested module in the forked process, which ends with its exit code."""
    from elastichost.supervisor.launch import fork_server_client as local
    from elastichost.supervisor.remote import agent_launcher

    begin_anew(keep=(), stderr=stderr)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    set_child_subreaper(False)
    local.start_fork_server = fork_a_server  # type: ignore[attr-defined]
    agent_launcher.start_agent = fork_an_agent  # type: ignore[assignment]
    sys.argv = [request["module"], *request["arguments"]]
    gc.enable()
    end_with(lambda: runpy.run_module(request["module"], run_name="__main__"))


class ForkedAgent(ForkedServer):
    """A forked agent; stdin and stdout are this process' ends of its pipes."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        super().__init__(pid)
        self.stdin, self.stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)

    @property
    def returncode(self) -> int | None:
        return self._code


def fork_an_agent(command: list[str], stderr: IO[bytes], environment: dict[str, str] | None) -> Any:
    """Takes the place of `agent_launcher.start_agent`: forks an agent of this machine from this process, which has
    imported its libraries. Every other command, and an agent after this process has started threads, is a new process.
    """
    from elastichost.supervisor.remote import agent_launcher

    is_agent = command == [sys.executable, "-m", agent_launcher.AGENT_MODULE]
    if not is_agent or len(os.listdir("/proc/self/task")) > 1:
        return start_agent(command, stderr, environment)
    reading, stdin = os.pipe()
    stdout, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_agent(reading, writing, stderr.fileno(), dict(os.environ) if environment is None else environment)
    os.close(reading)
    os.close(writing)
    return ForkedAgent(pid, stdin, stdout)


def _be_agent(reading: int, writing: int, stderr: int, environment: dict[str, str]) -> NoReturn:
    from elastichost.supervisor.launch import fork_server_client as local
    from elastichost.supervisor.remote import agent

    begin_anew(keep=(reading, writing, stderr), stderr=stderr)
    os.dup2(reading, 0)
    os.dup2(writing, 1)
    for descriptor in (reading, writing):
        os.close(descriptor)
    begin_session()
    os.environ.clear()
    os.environ.update(environment)
    local.start_fork_server = fork_or_start  # type: ignore[attr-defined]
    end_with(lambda: sys.exit(agent.main()))


def _reap(connection: socket.socket, known: set[int]) -> None:
    """Reports ended supervisors to the test process; other ended children are orphans and are only reaped."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            if pid in known:
                known.discard(pid)
                said = {"ended": pid, "code": os.waitstatus_to_exitcode(status)}
                connection.send(json.dumps(said).encode())


def _readable(descriptors: Sequence[int], timeout_s: float) -> list[int]:
    """Waits like select.select, which has no descriptors above 1023; other tests of this process may hold many."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]


def _serve(connection: socket.socket) -> None:
    """Forks a supervisor for each request, until the test process closes the connection."""
    known: set[int] = set()
    while True:
        readable = _readable([connection.fileno()], 0.01 if known else 0.2)
        _reap(connection, known)
        if not readable:
            continue
        data, ancillary, _, _ = connection.recvmsg(MAX_BYTES, socket.CMSG_LEN(4))
        if not data:
            return
        rights = array.array("i")
        rights.frombytes(ancillary[0][2])
        pid = os.fork()
        if pid == 0:
            _supervise(json.loads(data), rights[0])
        os.close(rights[0])
        known.add(pid)
        connection.send(json.dumps({"pid": pid}).encode())


def main(descriptor: int) -> None:
    from elastichost.supervisor.launch.launcher import Entries

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    set_child_subreaper(True)
    prepared = prepare(PrepareMsg(Entries().imports, Entries().calls))
    assert not prepared.error, prepared.error
    assert prepared.threads == 1, "a thread would not survive the fork"
    _serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main(int(sys.argv[1]))
