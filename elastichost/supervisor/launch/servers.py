"""How a fork server comes to be: as a new process that imports torch, or forked from one that has.

Forked is what a supervisor wants that was itself forked from a prepared process (a host with many jobs imports torch
once): its fork server is there in milliseconds. Only while the process has one thread: what another held at the fork
would stay held for ever.
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
# Big blocks stay in the heap instead of being mapped and unmapped for every batch: 10-20 % of a training step.
MALLOC_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}
# A pool made before the fork would be dead after it; a process that may have more threads sets them itself.
# Arrow's jemalloc starts a background thread when it is imported; malloc, tuned above, does not.
THREAD_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# "Is there a GPU?" is asked by libraries while they are imported. Asked of the CUDA driver, it is the end of CUDA in
# every process forked later, and leaves a thread of the driver's; NVML, which knows it as well, harms nothing.
CUDA_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
SPIN_ENVIRONMENT = {  # unless the user says otherwise
    # Threads of one process wait for each other by spinning; with somebody else on one of their cores they spin away
    # its whole time slice: 2 workers x 2 threads on 2 cores had 7 % of the speed of a short spin, which costs 2 threads
    # on cores of their own about a tenth.
    "GOMP_SPINCOUNT": "1000",
}


class ServerProcess(Protocol):
    """A fork server, as `subprocess.Popen` has it."""

    pid: int

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        ...


# The other end of a fork server's socket and where its stderr goes -> the process.
StartServer = Callable[[socket.socket, IO[bytes]], ServerProcess]


def fork_server_environment() -> dict[str, str]:
    return {**SPIN_ENVIRONMENT, **os.environ, **MALLOC_ENVIRONMENT, **THREAD_ENVIRONMENT, **CUDA_ENVIRONMENT}


def start_fork_server(connection: socket.socket, stderr: IO[bytes]) -> ServerProcess:
    """A new process that serves the other end of `connection`."""
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
    """As `subprocess.Popen` would have it. It is a child of this process."""

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
        with contextlib.suppress(ProcessLookupError):  # its end shows on a descriptor, without looking again and again
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
    """In place of `local.start_fork_server`; the process has no thread but this one."""
    from elastichost.supervisor.launch.fork_server import main as serve_forks

    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        begin_anew(keep=(connection.fileno(), stderr.fileno()), stderr=stderr.fileno())
        begin_session()
        set_parent_death_signal(signal.SIGCONT)  # stopped with a paused job, it still is to see that it is alone
        os.environ.update(fork_server_environment())
        end_with(lambda: serve_forks([str(connection.fileno()), str(supervisor)]))
    return ForkedServer(pid)


def fork_or_start(connection: socket.socket, stderr: IO[bytes]) -> ServerProcess:
    """Forked while this process has one thread; a new one, which imports everything anew, when it has more: a fork
    server that was lost later is replaced by such a one."""
    alone = len(os.listdir("/proc/self/task")) == 1
    return (fork_a_server if alone else start_fork_server)(connection, stderr)


def begin_anew(keep: tuple[int, ...], stderr: int) -> None:
    """In a forked process, as if it had been executed: descriptors and signals of its parent are not its own."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(stderr, 2)
    for standard in (0, 1):
        os.dup2(null, standard)
    close_descriptors(keep)


def end_with(run: Callable[[], object]) -> NoReturn:
    """Leaves without what the interpreter that was forked would do at its end."""
    code = 1
    try:
        run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - the end of the process, as the interpreter does it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
