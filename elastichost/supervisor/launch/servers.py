"""Starts a fork server: as a new process that imports torch, or as a fork of a process that has imported it.

A supervisor that a dispatcher forked from a prepared process (on a host with many jobs torch is imported once) forks
its fork server, which is then ready in milliseconds. This is possible only while the supervisor has one thread: a lock
that another thread holds at the fork would never be released in the forked process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import IO, NoReturn, Protocol

from elastichost.host.prctl import set_parent_death_signal
from elastichost.host.priority import begin_session
from elastichost.supervisor.launch.child import close_descriptors

__all__ = [
    "ForkedServer",
    "ServerProcess",
    "StartServer",
    "begin_anew",
    "end_with",
    "fork_a_server",
    "fork_or_start",
    "fork_server_environment",
    "start_fork_server",
]

FORK_SERVER_MODULE = "elastichost.supervisor.launch.fork_server"
# With these, large blocks stay in the heap instead of being mapped and unmapped for every batch, which takes 10 to 20 %
# of a training step.
MALLOC_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}
# The threads of a pool that was made before a fork do not exist after it, so no pool is made. A worker that may use
# more threads sets their number itself. Arrow's jemalloc starts a background thread at its import; malloc does not.
THREAD_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# Some libraries ask at their import whether there is a GPU. If they ask the CUDA driver, CUDA does not work in any
# process that is forked later, and the driver leaves a thread. NVML answers as well and has neither effect.
CUDA_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
SPIN_ENVIRONMENT = {  # variables that the user has set take precedence
    # Threads of one process wait for each other by spinning. With another process on one of their cores they spin for
    # its whole time slice: 2 workers of 2 threads on 2 cores had 7 % of the speed that they have with a short spin. The
    # short spin costs 2 threads on cores of their own about 10 % of their speed.
    "GOMP_SPINCOUNT": "1000",
}


class ServerProcess(Protocol):
    """The process of a fork server, with the interface of `subprocess.Popen`."""

    pid: int

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        ...


# (the fork server's end of the socket, the file for its stderr) -> the process of the fork server
StartServer = Callable[[socket.socket, IO[bytes]], ServerProcess]


def fork_server_environment() -> dict[str, str]:
    """The environment of a fork server: that of this process, with the variables above."""
    return {**SPIN_ENVIRONMENT, **os.environ, **MALLOC_ENVIRONMENT, **THREAD_ENVIRONMENT, **CUDA_ENVIRONMENT}


def start_fork_server(connection: socket.socket, stderr: IO[bytes]) -> ServerProcess:
    """Starts a fork server as a new process. connection: the fork server's end of the socket. stderr: the file for its
    stderr."""
    return subprocess.Popen(
        [sys.executable, "-m", FORK_SERVER_MODULE, str(connection.fileno()), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=fork_server_environment(),
        pass_fds=(connection.fileno(),),
        start_new_session=True,
    )


class ForkedServer:
    """A fork server that was forked from this process, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            self._code = self._reaped(timeout)
        return self._code

    def _reaped(self, timeout_s: float | None) -> int:
        with contextlib.suppress(ProcessLookupError):  # a pidfd reports the end, so no loop has to look for it
            pidfd = os.pidfd_open(self.pid)
            try:
                poller = select.poll()
                poller.register(pidfd, select.POLLIN)
                if not poller.poll(None if timeout_s is None else timeout_s * 1000):
                    raise subprocess.TimeoutExpired("a fork server", timeout_s or 0.0)
            finally:
                os.close(pidfd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork_a_server(connection: socket.socket, stderr: IO[bytes]) -> ServerProcess:
    """Forks a fork server from this process, which must have one thread. Arguments as those of `start_fork_server`."""
    from elastichost.supervisor.launch.fork_server import main as serve_forks

    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        begin_anew(keep=(connection.fileno(), stderr.fileno()), stderr=stderr.fileno())
        begin_session()
        # A paused job is stopped with its fork server, which must notice the death of its supervisor nevertheless.
        set_parent_death_signal(signal.SIGCONT)
        os.environ.update(fork_server_environment())
        end_with(lambda: serve_forks([str(connection.fileno()), str(supervisor)]))
    return ForkedServer(pid)


def fork_or_start(connection: socket.socket, stderr: IO[bytes]) -> ServerProcess:
    """Forks a fork server if this process has one thread. Otherwise starts a new process, which imports all libraries
    again: a supervisor has more threads later, when it replaces a fork server that has ended."""
    alone = len(os.listdir("/proc/self/task")) == 1
    return (fork_a_server if alone else start_fork_server)(connection, stderr)


def begin_anew(keep: tuple[int, ...], stderr: int) -> None:
    """Gives a forked process the descriptors and signal handlers of a process that was newly executed.

    keep: descriptors that stay open. stderr: becomes descriptor 2; 0 and 1 become /dev/null.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(stderr, 2)
    for standard in (0, 1):
        os.dup2(null, standard)
    close_descriptors(keep)


def end_with(run: Callable[[], object]) -> NoReturn:
    """Calls `run` and ends the process, without the exit handlers of the interpreter that was forked. The exit code is
    0, that of a SystemExit, or 1 after another exception."""
    code = 1
    try:
        run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - prints it and exits with 1, as the interpreter would
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
