"""The program of a supervisor that was started from Python: `python -m elastichost.api.supervisor_process DESCRIPTOR`.

It reads what to run from the inherited socket, runs it, and answers how that ended (`launch`). A thread waits for
requests to stop, and for the end of the other process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import tomllib
import traceback
from pathlib import Path

# Must be set before numpy is imported, as in __main__.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import msgspec

from elastichost.api.launch import KILL, NOT_ITS_OWN, ErrorFacts, StartMsg, SupervisorEndMsg, receive, send
from elastichost.config.hosts import HostsFile, read_hosts, with_hosts
from elastichost.config.job import JobSpec
from elastichost.errors import ElastichostError, JobFailedError
from elastichost.run_files import HOSTS_FILE

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    _discard_interrupts()
    connection = socket.socket(fileno=int(arguments[0]))
    connection.set_inheritable(False)
    start = msgspec.json.decode(receive(connection), type=StartMsg)
    try:
        signal.signal(signal.SIGQUIT, signal.default_int_handler)  # as SIGINT, until the run takes both
        threading.Thread(target=_obey, args=(connection,), daemon=True).start()
        end = _run(start)
    except KeyboardInterrupt:  # the stop came before the run could take it
        end = SupervisorEndMsg(error=ErrorFacts(JobFailedError.__name__, "it had not begun to train"))
    with contextlib.suppress(OSError):  # the other end may be gone: the result is in the directory of the run
        send(connection, msgspec.json.encode(end))


def _discard_interrupts() -> None:
    """Throws away an interrupt that came before this process had a session of its own; later ones count again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NOT_ITS_OWN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(start: StartMsg) -> SupervisorEndMsg:
    from elastichost.supervisor import run_job

    run_dir = Path(start.run_dir)
    try:
        job = JobSpec.model_validate(tomllib.loads(start.toml))
        source = Path(start.start_from) if start.start_from else None
        if not start.is_resumed:
            return SupervisorEndMsg(run_job(job, run_dir, start_from=source))
        hosts = _hosts_of(run_dir)
        job = with_hosts(job, hosts) if hosts is not None else job
        return SupervisorEndMsg(run_job(job, resume_from=run_dir, start_from=source, hosts=hosts))
    except ElastichostError as error:
        return SupervisorEndMsg(error=ErrorFacts.of(error))
    except Exception as error:  # noqa: BLE001 - the other process raises it
        traceback.print_exc()
        return SupervisorEndMsg(error=ErrorFacts(type(error).__name__, str(error), "this is a bug in elastichost"))


def _hosts_of(run_dir: Path) -> HostsFile | None:
    """The other machines of a run, on which it goes on; None: it trains on this one alone. Raises ConfigError for a
    damaged file, and as `listed_anew`."""
    from elastichost.supervisor.remote.ray.cluster import listed_anew

    path = run_dir / HOSTS_FILE
    return listed_anew(read_hosts(path)) if path.exists() else None


def _obey(connection: socket.socket) -> None:
    """Turns what the other process asks for into signals to this process. Its end asks for a stop."""
    parent = os.pidfd_open(os.getppid())
    is_stopping = False
    while True:
        asked = _asked(connection, parent)
        if asked == KILL or not is_stopping:
            os.kill(os.getpid(), signal.SIGQUIT if asked == KILL else signal.SIGINT)
        is_stopping = True
        if not asked:
            return


def _asked(connection: socket.socket, parent: int) -> bytes:
    """The next request; empty when the other process has ended. The process itself is watched, too: one that it forked
    may still hold its end of the connection."""
    with contextlib.suppress(OSError):
        readable, _, _ = select.select([connection.fileno(), parent], [], [])
        if connection.fileno() in readable:
            return connection.recv(1)
    return b""


if __name__ == "__main__":
    main(sys.argv[1:])
