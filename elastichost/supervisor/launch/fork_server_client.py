"""The launcher of this host: starts a fork server, requests processes from it, and reaps them.

Only `wait_prepared`, `end_children` and `close` block. A caller waits on `descriptors()` and then calls `events()`.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.errors import PreflightError
from elastichost.host.prctl import set_child_subreaper
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import (
    Exited,
    ForkServerExited,
    LaunchEvent,
    LogNotOpened,
    Started,
    StartFailed,
)
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.launch.messages import (
    MAX_PACKET_BYTES,
    CleanMsg,
    ForkReply,
    ForkRequest,
    PreparedMsg,
    PrepareMsg,
    SpawnedMsg,
    SpawnMsg,
    SpawnRefusedMsg,
)
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.supervisor.launch.servers import StartServer, start_fork_server

__all__ = ["LocalLauncher"]

LOSSES = 10  # so many fork servers may end unexpectedly within the window; one more is an error
LOSSES_WINDOW_S = 600.0
EARLY_LOSSES = 3  # so many fork servers may be ended by a signal before the first is ready
# Importing torch and torchrec takes up to half a minute on a busy machine; a fork takes milliseconds.
ANSWER_TIMEOUT_S = 180.0


@dataclass(slots=True)
class _Child:
    process: ProcessId
    pidfd: int


class LocalLauncher:
    """Starts processes on this host. Implements `launcher.Launcher`. Use it as a context manager: when the block is
    left, all processes that it started are ended.

    modules, calls: what the fork server imports and calls before it forks. start: starts the fork server; None: as a
    new process.
    """

    def __init__(self, modules: Iterable[str], calls: Iterable[str] = (), start: StartServer | None = None) -> None:
        self._start_server = start or start_fork_server
        self._prepare = PrepareMsg(tuple(modules), tuple(calls))
        self._clean = CleanMsg(())
        self._decoder = msgspec.json.Decoder(ForkReply)
        self._requests: dict[int, ProcessId] = {}
        self._answered_s = time.monotonic()  # when the fork server last answered, or got its first open request since
        self._children: dict[int, _Child] = {}
        self._pending: deque[LaunchEvent] = deque()
        self._next_request = 1
        self._losses: deque[float] = deque(maxlen=LOSSES + 1)  # when a fork server ended unexpectedly
        self._closed = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the launcher
        self.prepared: PreparedMsg | None = None
        set_child_subreaper(True)
        self._start()

    def __enter__(self) -> LocalLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the fork server ------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = self._start_server(theirs, self._stderr)
        self._socket = ours
        self._send(self._prepare)
        self._send(self._clean)

    @property
    def server_pid(self) -> int:
        return self._server.pid

    def clean_when_lost(self, directories: Iterable[Path], kept: Iterable[Path] = (), keep_s: float = 0.0) -> None:
        """Tells the fork server what to remove if this process ends without `close`: `directories` at once, and each
        of `kept` after `keep_s` seconds if this process still owns it then (a resumed run may have taken it over).
        Replaces the directories of an earlier call."""
        self._clean = CleanMsg(tuple(map(str, directories)), tuple(map(str, kept)), keep_s)
        self._send(self._clean)

    def _send(self, request: ForkRequest, descriptors: Iterable[int] = ()) -> bool:
        data = msgspec.json.encode(request)
        if len(data) > MAX_PACKET_BYTES:
            raise ValueError(f"a request of {len(data)} bytes for the fork server exceeds {MAX_PACKET_BYTES} bytes")
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights.tobytes())] if rights else []
        try:
            self._socket.sendmsg([data], ancillary)
        except (BrokenPipeError, ConnectionResetError):
            return False  # `events` finds the socket closed and starts another fork server
        return True

    # --- asking ---------------------------------------------------------------------------------------------

    def spawn(self, request: SpawnRequest) -> None:
        """Implements `launcher.Launcher.spawn`. The request's host does not matter: several hosts of a run may be
        emulated on this machine."""
        number = self._next_request
        self._next_request += 1
        message = SpawnMsg(
            number,
            request.process.name,
            request.entry,
            request.arguments.decode(),
            request.cores,
            dict(request.environment),
        )
        try:
            descriptor = self._open_log(request)
        except OSError as error:
            self._pending.append(StartFailed(request.process, f"no file can be opened: {error}", error.errno or 0))
            return
        try:
            if self._send(message, (descriptor,)):
                if not self._requests:
                    self._answered_s = time.monotonic()
                self._requests[number] = request.process
            else:
                self._pending.append(StartFailed(request.process, "the fork server has ended"))
        finally:
            os.close(descriptor)

    def _open_log(self, request: SpawnRequest) -> int:
        """A descriptor of the log of a process. A process is needed more than its log: if that cannot be opened, the
        descriptor is that of /dev/null, and an event tells why. Raises OSError when this process can open no file."""
        try:
            return _opened(request.log)
        except OSError as error:
            problem = LogNotOpened(request.process, str(request.log), error.strerror or str(error), error.errno or 0)
        with contextlib.suppress(OSError):  # the folder may be gone
            request.log.parent.mkdir(mode=0o700, exist_ok=True)
            return _opened(request.log)
        descriptor = os.open(os.devnull, os.O_WRONLY)
        self._pending.append(problem)
        return descriptor

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        """Sends a signal to a process; SIGKILL is also sent to all that it started. Does nothing once it has ended."""
        for pid, child in self._children.items():
            if child.process == process:
                _signal(pid, child.pidfd, number)

    def processes(self) -> dict[ProcessId, int]:
        """The processes that are not reaped yet, with their pids."""
        return {child.process: pid for pid, child in self._children.items()}

    # --- seeing ---------------------------------------------------------------------------------------------

    def descriptors(self) -> tuple[int, ...]:
        return (self._socket.fileno(), *(child.pidfd for child in self._children.values()))

    def events(self) -> list[LaunchEvent]:
        """What has happened since the last call. Never waits for an event. Raises PreflightError when fork servers end
        too often, or one ended before it was ready."""
        self._read_replies()
        self._reap()
        if self._requests and time.monotonic() - self._answered_s > ANSWER_TIMEOUT_S:
            self._lost()
        happened = list(self._pending)
        self._pending.clear()
        return happened

    def _read_replies(self) -> None:
        while True:
            try:
                data = self._socket.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._lost()
                return
            self._answered_s = time.monotonic()
            self._take(self._decoder.decode(data))

    def _take(self, reply: ForkReply) -> None:
        match reply:
            case PreparedMsg():
                self.prepared = reply
            case SpawnedMsg():
                process = self._requests.pop(reply.request)
                self._children[reply.pid] = _Child(process, os.pidfd_open(reply.pid))
                self._pending.append(Started(process, reply.pid))
            case SpawnRefusedMsg():
                self._pending.append(StartFailed(self._requests.pop(reply.request), reply.error, reply.number))

    def _lost(self) -> None:
        """Handles a fork server that has ended or does not answer: its open requests fail, and another is started.

        Raises PreflightError when more than LOSSES ended within LOSSES_WINDOW_S, or when one ended before it was ready
        and not by a signal: then something on the host is broken, and another fork server would end as well.
        """
        if self._closed:
            return
        self._socket.close()
        self._server.kill()
        code = self._server.wait()
        self._losses.append(time.monotonic())
        was_ready = self.prepared is not None and not self.prepared.error
        was_killed = code < 0 and len(self._losses) <= EARLY_LOSSES
        is_often = len(self._losses) > LOSSES and self._losses[-1] - self._losses[0] < LOSSES_WINDOW_S
        if is_often or not (was_ready or was_killed):
            raise PreflightError(
                f"the fork server ended (code {code}){self._last_words()}", hint="run `elastichost doctor`"
            )
        for process in self._requests.values():
            self._pending.append(StartFailed(process, "the fork server died"))
        self._requests.clear()
        self._pending.append(ForkServerExited(Exited(ProcessId("server", 0, 0), self._server.pid, code).cause))
        self._start()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        text = self._stderr.read()[-4000:].decode(errors="replace").strip()
        return f":\n{text}" if text else ""

    def _reap(self) -> None:
        if not self._children:
            return
        poller = select.poll()
        owner = {child.pidfd: pid for pid, child in self._children.items()}
        for pidfd in owner:
            poller.register(pidfd, select.POLLIN)
        for pidfd, _ in poller.poll(0):
            self._reap_one(owner[pidfd])

    def _reap_one(self, pid: int) -> None:
        child = self._children.pop(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # processes that it started and that still run
        code, cpu_s = -signal.SIGKILL, 0.0
        with contextlib.suppress(ChildProcessError):
            _, status, used = os.wait4(pid, 0)
            code, cpu_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-pid, os.WNOHANG)[0]:
                pass
        os.close(child.pidfd)
        self._pending.append(Exited(child.process, pid, code, cpu_s))

    # --- waiting --------------------------------------------------------------------------------------------

    def wait_prepared(self, timeout_s: float) -> PreparedMsg:
        """Waits until the fork server has imported the libraries. An exception of an import is in the reply's `error`.
        Raises PreflightError when a fork server cannot be started, or is not ready in time."""
        deadline_s = time.monotonic() + timeout_s
        while self.prepared is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise PreflightError(
                    f"the fork server is not ready after {timeout_s:g} s", hint="the host may be busy; try again"
                )
            wait_readable([self._socket.fileno()], left_s)
            self._read_replies()
        return self.prepared

    def end_children(self) -> None:
        """Sends SIGKILL to all processes. Returns when all are reaped, or after 5 s. The fork server stays."""
        self._collect_late_starts()
        for pid, child in self._children.items():
            _signal(pid, child.pidfd, signal.SIGKILL)
        self._wait_ended(5.0)

    def close(self) -> None:
        """Ends all processes with SIGKILL, then the fork server. A repeated call does nothing."""
        if self._closed:
            return
        if self.prepared is None:
            self._server.kill()  # it still imports: it has forked nothing, and would find the closed socket late
        self.end_children()
        self._closed = True
        self._stderr.close()
        with contextlib.suppress(OSError):  # the socket is closed already if the fork server ended too often
            # keep_s is 0, because nothing is kept for a resumed run when the launcher is closed on purpose
            self._send(CleanMsg(self._clean.directories, self._clean.kept))
        self._socket.close()  # so the fork server cleans up and exits
        try:
            self._server.wait(5.0)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        set_child_subreaper(False)

    def _collect_late_starts(self) -> None:
        """Waits up to 1 s for the answers to open requests: a process that was forked can only be ended once its pid is
        known."""
        if self.prepared is None:
            return
        deadline_s = time.monotonic() + 1.0
        with contextlib.suppress(PreflightError):
            while self._requests and (left_s := deadline_s - time.monotonic()) > 0:
                wait_readable([self._socket.fileno()], left_s)
                self._read_replies()

    def _wait_ended(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self._children and (left_s := deadline_s - time.monotonic()) > 0:
            wait_readable([child.pidfd for child in self._children.values()], left_s)
            self._reap()


def _opened(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def _signal(pid: int, pidfd: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGKILL:
            os.killpg(pid, number)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
