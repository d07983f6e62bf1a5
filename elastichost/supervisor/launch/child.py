"""What a forked process does from its fork to the call of its entry, and at its exit."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import io
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import NoReturn

from typing_extensions import Buffer

from elastichost.atomic_write import is_out_of_space
from elastichost.host.prctl import set_parent_death_signal, set_process_name
from elastichost.host.priority import begin_session
from elastichost.host.stop_signals import ignore_termination
from elastichost.supervisor.launch.messages import SpawnMsg

__all__ = [
    "ChildStart",
    "close_descriptors",
    "log_stream",
    "run_child",
]

ADOPTION_S = 5.0


@dataclass(frozen=True, slots=True)
class ChildStart:
    """The arguments of `run_child`. log, gate: inherited descriptors. The fork server writes one byte to the gate after
    it has sent the process' pid to the supervisor."""

    spawn: SpawnMsg
    log: int
    gate: int
    supervisor_pid: int


def run_child(start: ChildStart) -> NoReturn:
    """Calls the entry and exits with its code, or with 1 and a traceback in the log. Never returns."""
    code = 1
    try:
        _settle(start)
        code = _call(start.spawn)
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else int(request.code is not None)
    except BaseException:  # noqa: BLE001 - the process ends here; no caller could handle it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _settle(start: ChildStart) -> None:
    begin_session()  # Ctrl-C in the terminal reaches only the supervisor; killpg reaches all that the entry starts
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_termination()
    _redirect(start.log)
    if os.read(start.gate, 1) != b"g":
        os._exit(1)  # the fork server died before it sent this process' pid to the supervisor
    _wait_for_adoption(start.supervisor_pid)
    close_descriptors()
    set_process_name(start.spawn.name)
    if start.spawn.cores:
        os.sched_setaffinity(0, start.spawn.cores)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # When the host is out of memory, the kernel should kill this process before the supervisor.
        file.write(str(start.spawn.oom_score_adjustment))
    os.environ.update(start.spawn.environment)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the supervisor sends it to a hung process: stacks to log
    gc.enable()


def _redirect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = log_stream(1), log_stream(2)


class _LogFile(io.FileIO):
    """A log file on a disk that may be full. Bytes that the disk has no space for are dropped and counted, because a
    print must not end a process that trains. The next write that succeeds first writes the count."""

    dropped_bytes = 0

    def write(self, content: Buffer, /) -> int:
        size = memoryview(content).nbytes
        try:
            if self.dropped_bytes:
                super().write(f"[{self.dropped_bytes} bytes are missing here: the disk was full]\n".encode())
                self.dropped_bytes = 0
            return super().write(content)
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self.dropped_bytes += size
            return size


def log_stream(descriptor: int) -> io.TextIOWrapper:
    """A text stream that writes to this descriptor line by line, and drops text while the disk is full."""
    raw = _LogFile(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=True
    )


def _wait_for_adoption(supervisor_pid: int) -> None:
    """Waits until the intermediate process has ended and the supervisor is the parent; exits after ADOPTION_S.

    The death signal is set only then, because it is sent when the present parent dies. The supervisor may have died
    before the signal was set, so the parent is checked again afterwards.
    """
    deadline_s = time.monotonic() + ADOPTION_S
    while os.getppid() != supervisor_pid:
        if time.monotonic() > deadline_s:
            os._exit(1)
        time.sleep(0.0005)
    set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(1)


def close_descriptors(keep: tuple[int, ...] = ()) -> None:
    """Closes all descriptors of this process but 0 to 2 and `keep`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _call(spawn: SpawnMsg) -> int:
    module_name, _, function = spawn.entry.partition(":")
    result = getattr(importlib.import_module(module_name), function)(spawn.arguments.encode())
    return result if isinstance(result, int) else 0
