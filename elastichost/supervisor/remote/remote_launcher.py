"""The launcher of another host: the supervisor's end of an agent."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from elastichost.arena.layout import ArenaLayout
from elastichost.config.hosts import HostSection
from elastichost.errors import ArenaError, ArenaFullError, ElastichostError, PreflightError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import (
    AgentLost,
    Exited,
    ForkServerExited,
    LaunchEvent,
    LogNotOpened,
    Started,
    StartFailed,
)
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.launch.messages import PreparedMsg
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.agent_launcher import AgentProcess
from elastichost.supervisor.remote.framing import Pipe, PipeEndedError
from elastichost.supervisor.remote.link_probe import knock, open_door, receive_stream, send_stream
from elastichost.supervisor.remote.transfers import Transfers

__all__ = ["RemoteLauncher"]

PING_EVERY_S = 1.0
# In the count of seconds without a message a longer turn of the supervisor counts as this: while the supervisor itself
# was stopped, it could not read messages.
LONGEST_TURN_S = 1.0
END_PATIENCE_S = 3.0
LAST_WORDS_S = 2.0  # how long the end of a process that never sent WelcomeMsg is waited for, to get its whole stderr


_Answer = (
    said.ListeningMsg
    | said.PortProbedMsg
    | said.ArenaMadeMsg
    | said.ArenaRefusedMsg
    | said.StreamReceivedMsg
    | said.StreamSentMsg
    | said.FilesStattedMsg
)


class RemoteLauncher:
    """Starts the agent of host `number` of a run, and processes there. Implements `launcher.Launcher`. Raises OSError.

    timeout_s: the host is lost when its agent has sent nothing for longer. control_path: see `agent_command`.
    """

    def __init__(self, number: int, host: HostSection, timeout_s: float, control_path: Path | None = None) -> None:
        self.number, self.host = number, host
        self._timeout_s = timeout_s
        self._process = AgentProcess(host, control_path)
        self._pipe: Pipe[said.AgentWord] = Pipe(*self._process.streams, said.AgentWord, greets=False)
        self._logs: dict[ProcessId, Path] = {}
        self._live: dict[ProcessId, int | None] = {}  # process -> its pid there; None: requested, not started yet
        self._pending: deque[LaunchEvent] = deque()
        self._silent_s = 0.0
        self._looked_s = self._pinged_s = time.monotonic()
        self._pings = 0
        self._is_over = False
        self.lost = ""  # why the host is lost; "" while it is not
        self.prepared: PreparedMsg | None = None
        self.welcome: said.WelcomeMsg | None = None
        self.welcomed_s = 0.0  # since 1970, by this machine's clock
        self.opened: said.OpenedMsg | None = None
        self.measured = said.MeasuredMsg((), 0)
        self._answers: list[_Answer] = []
        self.files = Transfers(self._say)
        self.on_words: Callable[[said.WordsChangedMsg], None] | None = None
        self.on_kept: Callable[[said.CheckpointKeptMsg], None] | None = None

    @property
    def silent_s(self) -> float:
        """Seconds since the agent's last message; 0 for a lost host."""
        return 0.0 if self.lost else self._silent_s

    @property
    def pid(self) -> int:
        """The pid of the process on this machine: ssh, the relay of Ray, or the agent itself."""
        return self._process.pid

    # --- asking ---------------------------------------------------------------------------------------------

    def open(
        self, run_id: str, files: tuple[said.SourceFile, ...], imports: tuple[str, ...], calls: tuple[str, ...]
    ) -> None:
        """Sends OpenMsg. Does not wait; the answer is in `opened`, and later in `prepared`."""
        self._say(said.OpenMsg(run_id, self.number, files, imports, calls))

    def make_arena(self, layout: ArenaLayout, timeout_s: float) -> None:
        """Makes the arena there, and waits for it. Raises ArenaFullError, ArenaError, PreflightError."""
        answer = self._answer_to(said.MakeArenaMsg(layout), timeout_s, "to make the arena")
        if isinstance(answer, said.ArenaRefusedMsg):
            kind = ArenaFullError if answer.error_type == "ArenaFullError" else ArenaError
            raise kind(f"host {self.host.shown}: {answer.message}", hint=answer.hint)

    def ask_arena(self, layout: ArenaLayout) -> None:
        """As `make_arena`, without waiting: the answer is in `arena_answer`."""
        self._answers.clear()
        self._say(said.MakeArenaMsg(layout))

    @property
    def arena_answer(self) -> said.ArenaMadeMsg | said.ArenaRefusedMsg | None:
        """The answer to `ask_arena`; None: it has not come yet."""
        last = self._answers[-1] if self._answers else None
        return last if isinstance(last, said.ArenaMadeMsg | said.ArenaRefusedMsg) else None

    def reached_at(self, address: str, timeout_s: float) -> str:
        """Whether this machine reaches the host at the host's `address`: "", or why not. Raises PreflightError."""
        answer = self._answer_to(said.ListenMsg(address), timeout_s, "to listen")
        assert isinstance(answer, said.ListeningMsg)
        return answer.problem or knock(address, answer.port)

    def reaches(self, address: str, port: int, timeout_s: float) -> str:
        """Whether the host reaches this address: "", or why not. Raises PreflightError."""
        answer = self._answer_to(said.ProbePortMsg(address, port), timeout_s, "to connect back")
        assert isinstance(answer, said.PortProbedMsg)
        return answer.problem

    def speed_to(self, address: str, timeout_s: float) -> float:
        """The speed from this machine to the host's `address`, in bytes per second; 0.0 when it cannot be measured.
        Raises PreflightError."""
        door = self._answer_to(said.ReceiveStreamMsg(address), timeout_s, "to listen")
        if not isinstance(door, said.ListeningMsg) or door.problem:
            return 0.0
        try:
            send_stream(address, door.port)
        except OSError:
            return 0.0
        self.wait(lambda: isinstance(self._answers[-1], said.StreamReceivedMsg), timeout_s, "to measure the link")
        answer = self._answers[-1]
        return answer.bytes_per_s if isinstance(answer, said.StreamReceivedMsg) else 0.0

    def speed_from(self, address: str, timeout_s: float) -> float:
        """The speed from the host to this machine's `address`, in bytes per second; 0.0 when it cannot be measured."""
        self._answers.clear()
        try:
            door = open_door(address)
        except OSError:
            return 0.0
        with door:
            self._say(said.SendStreamMsg(address, door.getsockname()[1]))
            self._listen()
            return receive_stream(door, timeout_s)

    def sizes_of(self, paths: tuple[str, ...], timeout_s: float) -> tuple[int, ...]:
        """The sizes of files there in bytes, -1 for those that cannot be read. Raises PreflightError."""
        self.ask_files(paths)
        self.wait(lambda: self.files_answer is not None, timeout_s, "to look up the data files")
        return self.files_answer or ()

    def ask_files(self, paths: tuple[str, ...]) -> None:
        """As `sizes_of`, without waiting: the answer is in `files_answer`."""
        self._answers.clear()
        self._say(said.StatFilesMsg(paths))

    @property
    def files_answer(self) -> tuple[int, ...] | None:
        """The answer to `ask_files`; None: it has not come yet."""
        last = self._answers[-1] if self._answers else None
        return last.sizes_bytes if isinstance(last, said.FilesStattedMsg) else None

    def _answer_to(self, order: said.AgentOrder, timeout_s: float, for_what: str) -> _Answer:
        """Sends an order and waits for its answer. Only one order with such an answer may be open at a time. Raises
        PreflightError."""
        self._answers.clear()
        self._say(order)
        self.wait(lambda: bool(self._answers), timeout_s, for_what)
        return self._answers[-1]

    def spawn(self, request: SpawnRequest) -> None:
        """Implements `launcher.Launcher.spawn`."""
        process = request.process
        if self.lost:
            self._pending.append(StartFailed(process, f"host {self.host.shown} is lost: {self.lost}"))
            return
        self._logs[process] = request.log
        self._write_log(process, b"")
        self._live[process] = None
        self._say(
            said.SpawnProcessMsg(process, request.entry, request.arguments, request.cores, dict(request.environment))
        )

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        """Implements `launcher.Launcher.kill`."""
        if process in self._live:
            self._say(said.SignalProcessMsg(process, number))

    def keep_checkpoint(self, incoming: str, directory: str, count: int) -> None:
        """Makes the agent keep the checkpoint that was sent into `incoming`. `on_kept` is called with the answer."""
        self._say(said.KeepCheckpointMsg(incoming, directory, count))

    def set_words(self, positions: bytes, values: bytes) -> None:
        """Sends words of the memory board that the supervisor has written, as in WordsSetMsg."""
        self._say(said.WordsSetMsg(positions, values))

    def processes(self) -> dict[ProcessId, int]:
        """Implements `launcher.Launcher.processes`."""
        return {process: pid for process, pid in self._live.items() if pid is not None}

    def _say(self, order: said.AgentOrder) -> None:
        if self.lost:
            return
        try:
            self._pipe.send(order)
        except PipeEndedError as error:
            self._lose(str(error))

    # --- seeing ---------------------------------------------------------------------------------------------

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait on; none for a lost host."""
        return () if self.lost or self._is_over else (self._pipe.reading,)

    def events(self) -> list[LaunchEvent]:
        """What has happened since the last call. Waits only when an agent fails to start, up to LAST_WORDS_S."""
        if not self.lost and not self._is_over:
            self._listen()
        happened = list(self._pending)
        self._pending.clear()
        return happened

    def _listen(self) -> None:
        now_s = time.monotonic()
        turn_s, self._looked_s = now_s - self._looked_s, now_s
        self._silent_s += min(turn_s, LONGEST_TURN_S)
        try:
            for word in self._pipe.receive():
                self._silent_s = 0.0
                self._hear(word)
            if now_s - self._pinged_s >= PING_EVERY_S:
                self._pinged_s = now_s
                self._pings += 1
                self._pipe.send(said.PingMsg(self._pings))
            self._pipe.flush()
            self.files.turn(lambda: not self._pipe.has_queued)
        except PipeEndedError as error:
            self._lose(str(error))
            return
        except ProtocolError as error:
            self._lose(error.message)
            return
        if self.welcome is not None and self._silent_s > self._timeout_s:
            self._lose(f"its agent has sent nothing for {self._silent_s:.0f} s")

    def _hear(self, word: said.AgentWord) -> None:
        match word:
            case said.WelcomeMsg():
                self.welcome, self.welcomed_s = word, time.time()
            case said.OpenedMsg():
                self.opened = word
            case said.LibrariesReadyMsg(seconds=seconds, threads=threads, error=error):
                self.prepared = PreparedMsg(seconds, threads, error)
            case said.ForkServerEndedMsg(reason=reason):
                self._pending.append(ForkServerExited(f"host {self.host.shown}: {reason}"))
            case said.ProcessStartedMsg(process=process, pid=pid):
                self._live[process] = pid
                self._pending.append(Started(process, pid))
            case said.ProcessRefusedMsg(process=process, reason=reason):
                self._live.pop(process, None)
                self._pending.append(StartFailed(process, reason))
            case said.ProcessEndedMsg(process=process):
                self._live.pop(process, None)
                self._pending.append(Exited(process, word.pid, word.code, word.cpu_s))
            case said.LogRefusedMsg(process=process, log=log, error=error):
                self._pending.append(LogNotOpened(process, f"{log} on host {self.host.shown}", error))
            case said.LogTextMsg(process=process, text=text):
                self._write_log(process, text)
            case said.MeasuredMsg():
                self.measured = word
            case said.WordsChangedMsg():
                if self.on_words is not None:
                    self.on_words(word)
            case said.TroubleMsg(error_type=error_type, message=message):
                self._lose(f"{error_type}: {message}")
            case said.FilePieceMsg():
                self.files.came(word)
            case said.FileWrittenMsg():
                self.files.written(word)
            case (
                said.ListeningMsg()
                | said.PortProbedMsg()
                | said.ArenaMadeMsg()
                | said.ArenaRefusedMsg()
                | said.StreamReceivedMsg()
                | said.StreamSentMsg()
                | said.FilesStattedMsg()
            ):
                self._answers.append(word)
            case said.CheckpointKeptMsg():
                if self.on_kept is not None:
                    self.on_kept(word)
            case said.PongMsg():
                pass

    def _write_log(self, process: ProcessId, text: bytes) -> None:
        path = self._logs.get(process)
        if path is None:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)

    def _lose(self, reason: str) -> None:
        """Declares the host lost. All its processes count as ended: the supervisor cannot reach them any more, and
        fences their incarnations."""
        if self.lost:
            return
        words = self._process.last_words(LAST_WORDS_S if self.welcome is None else 0.0)
        noise = self._pipe.noise.decode(errors="replace").strip() if self.welcome is None else ""
        said_there = "\n".join(part for part in (noise, words) if part)
        self.lost = f"{reason}: {said_there}" if said_there else reason
        self._process.hang_up()  # an agent that was only cut off ends when it can be reached again
        self._pending.append(AgentLost(self.number, self.host.shown, self.lost))
        for process, pid in self._live.items():
            if pid is None:
                self._pending.append(StartFailed(process, f"host {self.host.shown} is lost"))
            else:
                self._pending.append(Exited(process, pid, -signal.SIGKILL))
        self._live.clear()
        self.files.lost(f"host {self.host.shown} is lost")

    # --- waiting --------------------------------------------------------------------------------------------

    def wait_turn(self, timeout_s: float) -> None:
        """Reads messages, and waits up to `timeout_s` for one. Their events are kept for `events`."""
        if not self.lost:
            wait_readable(self.descriptors(), timeout_s)
            self._listen()

    def wait(self, is_there: Callable[[], bool], timeout_s: float, for_what: str) -> None:
        """Reads messages until `is_there` holds. Their events are kept for `events`. for_what: for the error message,
        which ends with it. Raises PreflightError after `timeout_s`, or when the host is lost."""
        deadline_s = time.monotonic() + timeout_s
        while not is_there():
            if self.lost:
                raise PreflightError(
                    f"host {self.host.shown}: {self.lost}", hint="check the hosts with `elastichost doctor`"
                )
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise PreflightError(f"host {self.host.shown} took more than {timeout_s:g} s {for_what}")
            wait_readable(self.descriptors(), min(left_s, PING_EVERY_S))
            self._listen()

    def end_children(self) -> None:
        """Implements `launcher.Launcher.end_children`."""
        for process in list(self._live):
            self.kill(process)
        with contextlib.suppress(PreflightError):
            self.wait(lambda: not self._live, END_PATIENCE_S, "to end its processes")

    def hang_up(self) -> None:
        """Closes the connection. So the agent ends, and removes all that it made."""
        if not self._is_over:
            self._is_over = True
            self._process.close()

    def close(self) -> None:
        """Ends the agent with EndMsg. It ends its processes and removes all that it made."""
        if self._is_over:
            return
        with contextlib.suppress(ElastichostError):
            self._say(said.EndMsg())
        deadline_s = time.monotonic() + END_PATIENCE_S
        while not self.lost and (left_s := deadline_s - time.monotonic()) > 0:  # its last messages are logs
            wait_readable(self.descriptors(), min(left_s, PING_EVERY_S))
            self._listen()
        self.hang_up()
