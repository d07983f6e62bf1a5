"""The agent of a host: serves a supervisor on another machine. `python -m elastichost.supervisor.remote.agent`

It owns what belongs to this host: the fork server and its children, the run's directories, the arena, the measurements.
It has no knowledge of jobs: it follows orders and reports what happened. It sends and receives over its standard
streams (`remote.framing`), which ssh carries. It ends when its input is closed, when EndMsg comes, or when nothing came
for LONELY_S (its host was cut off, and the run goes on without it). Even if it is killed, no process and no directory
of the run stays on this host.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from elastichost.arena.arena import Arena
from elastichost.arena.host import (
    arena_directory,
    arena_root,
    create_directory,
    free_bytes,
    read_owner,
    reclaim,
    socket_directory,
    used_bytes,
)
from elastichost.arena.layout import ArenaLayout
from elastichost.arena.owner import end_owner, owner_of
from elastichost.arena.replica import ChangedWords, Changes, set_words
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError, ElastichostError, ProtocolError
from elastichost.host.cpu_features import present_cpu
from elastichost.host.inventory import inventory
from elastichost.host.own_directory import check_own
from elastichost.host.process_meter import ProcessMeter, anonymous_bytes
from elastichost.host.procfs import kernel_state
from elastichost.plan import ProcessId
from elastichost.runs.directory import package_versions
from elastichost.supervisor.launch.events import (
    Exited,
    ForkServerExited,
    LaunchEvent,
    LogNotOpened,
    Started,
    StartFailed,
)
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.launch.messages import PreparedMsg
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.agent_tasks import AgentTasks, below, write_piece
from elastichost.supervisor.remote.framing import Pipe, PipeEndedError

__all__ = ["LONELY_S", "Agent", "main"]

# So long because a supervisor that was stopped for a while (Ctrl-Z) sends nothing either, and must not lose its hosts.
LONELY_S = 60.0
PREDECESSOR_ENDS_S = 10.0
TICK_S = 0.05
MEASURE_EVERY_S = 1.0
# How often changed words are looked for and sent, and how often they are sent even without a change: the sizes of the
# files may change nevertheless.
TELL_EVERY_S, TELL_AT_LEAST_EVERY_S = 0.1, 1.0
LOG_BYTES = 64 * 1024


class _Host:
    """The directories, the fork server and the arena of one run on this host."""

    def __init__(self, order: said.OpenMsg) -> None:
        self.arena_path = arena_directory(order.run_id, order.host)
        self.sockets = socket_directory(f"{order.run_id}-h{order.host}")
        self.run_dir = Path(tempfile.gettempdir()) / f"elastichost-run-{order.run_id}-h{order.host}"
        self.arena: Arena | None = None
        self._launcher: LocalLauncher | None = None
        self._order = order

    @property
    def launcher(self) -> LocalLauncher:
        assert self._launcher is not None
        return self._launcher

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.arena_path, self.sockets, self.run_dir)

    def open(self) -> None:
        """Makes the directories and starts the fork server. Raises ArenaError, PreflightError."""
        self._end_predecessor()
        owner = owner_of(os.getpid(), self.run_dir)
        for directory in self.directories:
            create_directory(directory, owner)
        (self.run_dir / "logs").mkdir(mode=0o700)
        source = self.run_dir / "source"
        source.mkdir(mode=0o700)
        os.chdir(source)  # the processes that the fork server forks import modules of the job from there
        for file in self._order.files:
            write_piece(below(self.run_dir, file.name), 0, file.data)
        self._launcher = LocalLauncher(self._order.imports, self._order.calls)
        self._launcher.clean_when_lost(self.directories)

    def _end_predecessor(self) -> None:
        """Ends an earlier agent of this run, which was cut off before the host joined again. Waits until its
        directories are removed. Raises ArenaError when another user has made one of these directories."""
        for path in self.directories:
            check_own(path)
        with contextlib.suppress(ArenaError):
            end_owner(read_owner(self.run_dir))
        deadline_s = time.monotonic() + PREDECESSOR_ENDS_S  # its fork server ends its processes and cleans up
        while any(path.exists() for path in self.directories) and time.monotonic() < deadline_s:
            time.sleep(TICK_S)

    def make_arena(self, layout: ArenaLayout) -> None:
        """Makes the arena; replaces an earlier one when the run is rolled back. Raises ArenaError, ArenaFullError."""
        if self.arena is not None:
            self.arena.close()
            self.arena = None
            reclaim(self.arena_path)
            create_directory(self.arena_path, owner_of(os.getpid(), self.run_dir))
        self.arena = Arena.create(self.arena_path, layout, whole=False)

    def log_of(self, process: ProcessId) -> Path:
        return self.run_dir / "logs" / f"{process}.log"

    def close(self) -> None:
        if self._launcher is not None:
            self._launcher.close()
        if self.arena is not None:
            self.arena.close()
        for directory in self.directories:
            with contextlib.suppress(ArenaError):
                reclaim(directory)


class Agent:
    """Serves one supervisor, from WelcomeMsg to the end of the connection."""

    def __init__(self, pipe: Pipe[said.AgentOrder]) -> None:
        self._pipe = pipe
        self._host: _Host | None = None
        self._meter = ProcessMeter()
        self._said_prepared: PreparedMsg | None = None
        self._headers: ChangedWords | None = None
        self._board: ChangedWords | None = None
        self._begun: ChangedWords | None = None
        self._of_supervisor = np.zeros(0, np.bool_)  # words of the memory board that the supervisor writes
        self._tasks = AgentTasks()
        self._must_end = False  # set by EndMsg
        self._heard_s = self._measured_s = self._told_s = self._looked_s = time.monotonic()

    def run(self) -> int:
        """Serves until the end. Returns the exit code: 0 after EndMsg or when the connection ends, else the error's."""
        try:
            self._pipe.send(_welcome())
            while not self._must_end:
                self._turn()
        except PipeEndedError:
            return 0
        except ElastichostError as error:
            self._last_words(error)
            return int(error.exit_code)
        finally:
            self._close()
        return 0

    def _turn(self) -> None:
        launcher = self._host.launcher if self._host is not None else None
        wait_readable([self._pipe.reading, *(launcher.descriptors() if launcher is not None else ())], TICK_S)
        now_s = time.monotonic()
        for order in self._pipe.receive():
            self._heard_s = now_s
            self._follow(order)
        if now_s - self._heard_s > LONELY_S:
            raise PipeEndedError(f"the supervisor has sent nothing for {LONELY_S:g} s")
        for answer in self._tasks.answers():
            self._pipe.send(answer)
        if launcher is not None:
            for event in launcher.events():
                self._tell_event(event)
            self._tell_prepared(launcher)
        if now_s - self._measured_s >= MEASURE_EVERY_S:
            self._measured_s = now_s
            self._measure(now_s)
        if now_s - self._looked_s >= TELL_EVERY_S:
            self._looked_s = now_s
            self._tell_words(now_s)
        self._pipe.flush()

    # --- orders ---------------------------------------------------------------------------------------------

    def _follow(self, order: said.AgentOrder) -> None:
        match order:
            case said.OpenMsg():
                self._open(order)
            case said.PingMsg(number=number):
                self._pipe.send(said.PongMsg(number))
            case said.EndMsg():
                self._must_end = True
            case (
                said.ReadFileMsg()
                | said.WriteFileMsg()
                | said.RemoveFileMsg()
                | said.ListenMsg()
                | said.ProbePortMsg()
                | said.ReceiveStreamMsg()
                | said.SendStreamMsg()
                | said.StatFilesMsg()
                | said.KeepCheckpointMsg()
            ):
                self._tasks.ask(order, self._host.run_dir if self._host is not None else None)
            case said.MakeArenaMsg():
                self._make_arena(order)
            case said.SpawnProcessMsg():
                self._spawn(order)
            case said.SignalProcessMsg(process=process, number=number):
                self._opened.launcher.kill(process, number)
            case said.WordsSetMsg():
                self._set_words(order)

    @property
    def _opened(self) -> _Host:
        if self._host is None:
            raise ProtocolError("the agent got an order before OpenMsg")
        return self._host

    def _open(self, order: said.OpenMsg) -> None:
        if self._host is not None:
            raise ProtocolError("the agent got a second OpenMsg, and it serves one run only")
        self._host = host = _Host(order)
        host.open()
        self._pipe.send(said.OpenedMsg(str(host.arena_path), str(host.sockets), str(host.run_dir), os.getpid()))

    def _make_arena(self, order: said.MakeArenaMsg) -> None:
        host = self._opened
        try:
            host.make_arena(order.layout)
        except ElastichostError as error:
            self._pipe.send(said.ArenaRefusedMsg(type(error).__name__, error.message, error.hint))
            return
        arena = host.arena
        assert arena is not None
        self._headers = ChangedWords(arena.control, np.ones(len(arena.control), np.bool_))
        of_servers = arena.board.of_servers
        self._board, self._of_supervisor = ChangedWords(arena.board.words, of_servers), ~of_servers
        marks = Watermarks(arena.directory).words
        self._begun = ChangedWords(marks, np.ones(len(marks), np.bool_))
        self._pipe.send(said.ArenaMadeMsg())

    def _spawn(self, order: said.SpawnProcessMsg) -> None:
        host = self._opened
        host.launcher.spawn(
            SpawnRequest(
                order.process,
                order.entry,
                order.arguments,
                host.log_of(order.process),
                cores=order.cores,
                environment=order.environment,
            )
        )

    def _set_words(self, order: said.WordsSetMsg) -> None:
        arena = self._opened.arena
        if arena is None:
            raise ProtocolError("the agent got words of an arena before MakeArenaMsg")
        set_words(arena.board.words, self._of_supervisor, Changes.unpacked(order.positions, order.values))

    # --- what happened --------------------------------------------------------------------------------------

    def _tell_event(self, event: LaunchEvent) -> None:
        match event:
            case Started(process=process, pid=pid):
                self._pipe.send(said.ProcessStartedMsg(process, pid))
            case StartFailed(process=process, reason=reason):
                self._pipe.send(said.ProcessRefusedMsg(process, reason))
            case LogNotOpened(process=process):
                self._pipe.send(said.LogRefusedMsg(process, event.log, event.error))
            case Exited(process=process):
                self._tell_log(process)
                self._tell_words(time.monotonic(), at_once=True)  # before the end: the supervisor reads them after it
                self._pipe.send(said.ProcessEndedMsg(process, event.pid, event.code, event.cpu_s))
            case ForkServerExited(reason=reason):
                self._pipe.send(said.ForkServerEndedMsg(reason))

    def _tell_log(self, process: ProcessId) -> None:
        path = self._opened.log_of(process)
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            if text := file.read():
                self._pipe.send(said.LogTextMsg(process, text))

    def _tell_prepared(self, launcher: LocalLauncher) -> None:
        prepared = launcher.prepared
        if prepared is not None and prepared is not self._said_prepared:
            self._said_prepared = prepared
            self._pipe.send(said.LibrariesReadyMsg(prepared.seconds, prepared.threads, prepared.error))

    def _measure(self, now_s: float) -> None:
        if self._host is None:
            return
        launcher = self._host.launcher
        pids = {pid: process for process, pid in launcher.processes().items()}
        usages = self._meter.measure(pids, now_s)
        found: list[said.ProcessUsage] = []
        for pid, process in pids.items():
            usage, state = usages[pid], kernel_state(pid)
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                found.append(
                    said.ProcessUsage(
                        process,
                        float(times.user + times.system),
                        usage.cpu_percent,
                        usage.pss_bytes,
                        usage.private_bytes,
                        usage.rss_bytes,
                        usage.context_switches,
                        state.letter if state is not None else "",
                    )
                )
        own = anonymous_bytes(os.getpid()) + anonymous_bytes(launcher.server_pid)
        self._pipe.send(said.MeasuredMsg(tuple(found), own))

    def _tell_words(self, now_s: float, *, at_once: bool = False) -> None:
        host = self._host
        if host is None or host.arena is None or self._headers is None or self._board is None or self._begun is None:
            return
        # The words of PS (what they have taken) are read before the used memory is measured: see `arena.memory_board`.
        board, headers = self._board.take(), self._headers.take()
        is_due = at_once or now_s - self._told_s >= TELL_AT_LEAST_EVERY_S
        if not len(board) and not len(headers) and not is_due:
            return
        self._told_s = now_s
        used, index = used_bytes(host.arena_path), host.arena.files.index.touched_bytes()
        words = (*headers.packed(), *board.packed(), *self._begun.take().packed())
        self._pipe.send(said.WordsChangedMsg(used, index, free_bytes(host.arena_path), *words))

    # --- the end --------------------------------------------------------------------------------------------

    def _last_words(self, error: ElastichostError) -> None:
        with contextlib.suppress(PipeEndedError, ProtocolError):
            self._pipe.send(said.TroubleMsg(type(error).__name__, error.message, error.hint))

    def _close(self) -> None:
        self._tasks.close()
        if self._host is not None:
            self._host.close()
            self._host = None
        deadline_s = time.monotonic() + 1.0
        with contextlib.suppress(PipeEndedError):
            while self._pipe.has_queued and time.monotonic() < deadline_s:
                self._pipe.flush()
                time.sleep(0.01)


def _welcome() -> said.WelcomeMsg:
    caller, _, rest = os.environ.get("SSH_CONNECTION", "").partition(" ")
    address = rest.split()[1] if len(rest.split()) == 3 else ""
    root = arena_root()
    return said.WelcomeMsg(
        name=platform.node(),
        versions=package_versions(),
        inventory=inventory(),
        arena_root=str(root),
        arena_free_bytes=free_bytes(root),
        time_s=time.time(),
        address=address,
        caller=caller,
        cpu=present_cpu(),
    )


def main() -> int:
    """Serves the supervisor over the standard streams of this process. Everything that is printed goes to stderr."""
    reading, writing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # from ssh or its terminal; the closed input ends the agent instead
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return Agent(Pipe(reading, writing, said.AgentOrder, greets=True)).run()


if __name__ == "__main__":
    sys.exit(main())
