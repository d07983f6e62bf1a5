"""The fork server: imports the heavy libraries once, then forks a ready process in milliseconds.

Command: `python -m elastichost.supervisor.launch.fork_server DESCRIPTOR SUPERVISOR_PID`. The process has one thread,
and uses neither CUDA nor a thread pool. Requests come as JSON packets on an inherited socket (`launch.messages`);
nothing received is ever unpickled.

A child is forked twice. So the kernel makes the supervisor (a child subreaper) its parent, and only the supervisor
reaps it. The child waits at a gate until its pid was sent to the supervisor. So a fork server that dies in between
leaves no process that the supervisor does not know.

When the supervisor's end of the socket closes, for any reason, the fork server kills the processes that it forked,
removes the directories named in the last `CleanMsg`, keeps the arena for the time in it (`launch.arena_reaper`), and
exits.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import msgspec

from elastichost.arena.directory_lock import SharedDirectoryLock
from elastichost.arena.owner import Owner, owner_of
from elastichost.errors import ArenaError
from elastichost.host.stop_signals import ignore_termination
from elastichost.supervisor.launch.arena_reaper import guard
from elastichost.supervisor.launch.child import ChildStart, run_child
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

__all__ = ["ForkServer", "main"]

CHILDREN_END_S = 2.0


class ForkServer:
    """Serves one supervisor until its end of the socket closes."""

    def __init__(self, connection: socket.socket, supervisor_pid: int) -> None:
        self._socket = connection
        self._supervisor_pid = supervisor_pid
        self._decoder = msgspec.json.Decoder(ForkRequest)
        self._children: dict[int, int] = {}  # pid -> pidfd
        self._clean = CleanMsg(())
        self._supervisor = _owner(supervisor_pid)

    def serve(self) -> None:
        try:
            while (packet := self._receive()) is not None:
                request, descriptors = packet
                try:
                    self._answer(request, descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        finally:
            self._end()

    def _receive(self) -> tuple[ForkRequest, list[int]] | None:
        """The next request with its descriptors; None when the socket is closed. Exits when a request is too large."""
        room = socket.CMSG_LEN(4 * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(MAX_PACKET_BYTES, room)
        except ConnectionResetError:
            return None
        if not data:
            return None
        descriptors = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise SystemExit(f"fork server: a request has more than {MAX_PACKET_BYTES} bytes or 4 descriptors")
        return self._decoder.decode(data), list(descriptors)

    def _send(self, reply: ForkReply) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next `_receive` finds the socket closed
            self._socket.send(msgspec.json.encode(reply))

    def _answer(self, request: ForkRequest, descriptors: list[int]) -> None:
        match request:
            case PrepareMsg():
                self._send(_prepare(request))
            case CleanMsg():
                self._clean = request
            case SpawnMsg():
                self._spawn(request, descriptors)

    # --- forking --------------------------------------------------------------------------------------------

    def _spawn(self, request: SpawnMsg, descriptors: list[int]) -> None:
        self._forget_ended()
        if len(descriptors) != 1:
            self._send(SpawnRefusedMsg(request.request, f"{len(descriptors)} descriptors came, not that of the log"))
            return
        try:
            pid, gate = self._fork_twice(request, descriptors[0])
        except OSError as error:
            self._send(SpawnRefusedMsg(request.request, f"cannot fork: {error}", error.errno or 0))
            return
        with contextlib.suppress(ProcessLookupError):
            self._children[pid] = os.pidfd_open(pid)
        self._send(SpawnedMsg(request.request, pid))
        with contextlib.suppress(BrokenPipeError):
            os.write(gate, b"g")
        os.close(gate)

    def _fork_twice(self, request: SpawnMsg, log: int) -> tuple[int, int]:
        """Forks an intermediate process that forks the child. Returns (pid of the child, writing end of its gate).
        Raises OSError when a fork fails."""
        opened: list[int] = []
        try:
            opened += os.pipe()
            opened += os.pipe()
            middle = os.fork()
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        gate_read, gate_write, told_read, told_write = opened
        if middle == 0:
            self._middle(request, log, gate_read, gate_write, told_write)
        os.close(gate_read)
        os.close(told_write)
        said = int(os.read(told_read, 32) or 0)
        os.close(told_read)
        os.waitpid(middle, 0)
        if said <= 0:
            os.close(gate_write)
            raise OSError(-said, os.strerror(-said)) if said else OSError("the intermediate process has ended")
        return said, gate_write

    def _middle(self, request: SpawnMsg, log: int, gate_read: int, gate_write: int, told_write: int) -> None:
        """The intermediate process: forks the child, reports its pid, or minus an errno, and exits. Never returns."""
        try:
            child = os.fork()
            if child == 0:
                os.close(gate_write)
                run_child(ChildStart(request, log, gate_read, self._supervisor_pid))
            os.write(told_write, str(child).encode())
        except OSError as error:
            os.write(told_write, str(-(error.errno or 0)).encode())
        finally:
            os._exit(0)

    def _ended(self) -> tuple[int, ...]:
        """The pids of the children that have ended."""
        poller = select.poll()
        owner = {pidfd: pid for pid, pidfd in self._children.items()}
        for pidfd in owner:
            poller.register(pidfd, select.POLLIN)
        return tuple(owner[pidfd] for pidfd, _ in poller.poll(0))

    def _forget_ended(self) -> None:
        for pid in self._ended():
            os.close(self._children.pop(pid))

    # --- the end --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Kills the children and all that they started, removes the directories, and keeps the arena for its time."""
        ended_s = time.monotonic()
        keepings = [SharedDirectoryLock(Path(path)) for path in self._clean.kept] if self._clean.keep_s > 0 else []
        ended = self._ended()  # the kernel kills children with the supervisor, but not the processes they started
        for pid, pidfd in self._children.items():
            if pid in ended and _owner(pid) is not None:
                continue  # another process has this pid by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        deadline_s = ended_s + CHILDREN_END_S
        while self._children and time.monotonic() < deadline_s:
            wait_readable(self._children.values(), 0.1)
            self._forget_ended()
        for directory in self._clean.directories:
            shutil.rmtree(directory, ignore_errors=True)
        if self._supervisor is not None:
            left_s = max(0.0, ended_s + self._clean.keep_s - time.monotonic())
            guard(map(Path, self._clean.kept), self._supervisor, left_s)
        for keeping in keepings:
            keeping.close()


def _owner(pid: int) -> Owner | None:
    """The process as an owner; None when it does not run."""
    with contextlib.suppress(ArenaError):
        return owner_of(pid, Path())
    return None


def _prepare(request: PrepareMsg) -> PreparedMsg:
    began_s = time.monotonic()
    try:
        for name in request.modules:
            module = importlib.import_module(name)
            if name == "torch":
                module.set_num_threads(1)  # before any computation: a thread pool would not survive the fork
        for call in request.calls:
            module_name, _, function = call.partition(":")
            getattr(importlib.import_module(module_name), function)()
    except Exception:  # noqa: BLE001 - the reply carries it, and the supervisor raises an error of its own
        return PreparedMsg(time.monotonic() - began_s, _threads(), traceback.format_exc())
    gc.collect()
    gc.freeze()
    return PreparedMsg(time.monotonic() - began_s, _threads())


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def main(arguments: list[str]) -> None:
    descriptor, supervisor_pid = int(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_termination()
    gc.disable()
    connection = socket.socket(fileno=descriptor)
    ForkServer(connection, supervisor_pid).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
