"""Starts the process of a supervisor from Python, and reads how it ended.

The two processes share a socket. The supervisor gets a `StartMsg` on it, then perhaps STOP or KILL, and answers with a
`SupervisorEndMsg`. When the end of the Python process closes, for any reason, the supervisor stops the run so that it
can be resumed: a notebook that is closed or killed leaves no run behind, and loses none.

Ctrl-C in a terminal reaches a whole session. The supervisor has its own, so that only its parent decides what to do.
One that comes before the new process has its session waits in that process, which throws it away (`NOT_ITS_OWN`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import msgspec

from elastichost.errors import ConfigError, ElastichostError, JobFailedError, ModelError, named_error
from elastichost.runs.result import RunResult
from elastichost.user_model.frames import users_frames

__all__ = [
    "KILL",
    "NOT_ITS_OWN",
    "STOP",
    "ErrorFacts",
    "StartMsg",
    "SupervisorEndMsg",
    "SupervisorProcess",
    "receive",
    "send",
]

PROGRAM = "elastichost.api.supervisor_process"
LENGTH = struct.Struct("!Q")
MAX_BYTES = 1 << 26
SHOWN_BYTES = 4000
STOP, KILL = b"s", b"k"
NOT_ITS_OWN = {signal.SIGINT}  # blocked in a supervisor from its first moment, until it can throw away what came
FRAME = '  File "'  # how a frame of a traceback begins


class StartMsg(msgspec.Struct, frozen=True):
    """What to run. toml: the resolved job. run_dir: the directory of a new run, or of the run to resume. start_from: a
    trained model to begin with, "": none."""

    toml: str
    run_dir: str
    is_resumed: bool = False
    start_from: str = ""


class ErrorFacts(msgspec.Struct, frozen=True):
    """An error of the supervisor: the name of its class, and its parts."""

    kind: str
    message: str
    hint: str = ""
    problems: tuple[str, ...] = ()
    traceback_text: str = ""

    @classmethod
    def of(cls, error: ElastichostError) -> ErrorFacts:
        problems = error.problems if isinstance(error, ConfigError) else ()
        traceback_text = error.traceback_text if isinstance(error, ModelError) else ""
        return cls(type(error).__name__, error.message, error.hint, problems, traceback_text)

    def error(self) -> ElastichostError:
        """The error again, of the same class."""
        error = named_error(self.kind, self.message, hint=self.hint)
        match error:
            case ConfigError():
                error.problems = self.problems
            case ModelError():
                error.traceback_text, shown = self.traceback_text, users_frames(self.traceback_text)
                if FRAME in shown:
                    error.add_note(shown)  # Python and notebooks show it with the error
        return error


class SupervisorEndMsg(msgspec.Struct, frozen=True):
    """How the run ended: with a result, or with an error."""

    result: RunResult | None = None
    error: ErrorFacts | None = None


class SupervisorProcess:
    """A supervisor that was started from Python. Its methods may be called from any thread.

    pid: its process. Raises OSError when it cannot be started; `end` tells about one that dies at once."""

    def __init__(self, start: StartMsg) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process lives
        self._socket, theirs = socket.socketpair()
        blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, NOT_ITS_OWN)  # a new process inherits the mask
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": _import_path()},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
            theirs.close()
        self.pid = self._process.pid
        with contextlib.suppress(OSError):  # it is dead already
            send(self._socket, msgspec.json.encode(start))

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """Asks the supervisor to stop the run so that it can be resumed. A further call changes nothing."""
        with contextlib.suppress(OSError):
            self._socket.sendall(STOP)

    def kill(self) -> None:
        """Makes the supervisor kill all processes of the run. The run can be resumed from its newest checkpoint."""
        with contextlib.suppress(OSError):
            self._socket.sendall(KILL)

    def end(self) -> SupervisorEndMsg:
        """Waits for the end. Raises JobFailedError when the supervisor died without a word."""
        content = receive(self._socket)
        self._process.wait()
        self._socket.close()
        try:
            return msgspec.json.decode(content, type=SupervisorEndMsg)
        except msgspec.MsgspecError:
            raise self._died() from None
        finally:
            self._output.close()

    def _died(self) -> JobFailedError:
        self._output.seek(0)
        said = self._output.read()[-SHOWN_BYTES:].decode(errors="replace").strip()
        code = self._process.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return JobFailedError(
            f"the supervisor ended with {how}" + (f":\n{said}" if said else ""),
            hint="continue with `eh.resume(DIRECTORY)`: no committed sample is lost",
        )


def send(connection: socket.socket, content: bytes) -> None:
    """Sends one message."""
    connection.sendall(LENGTH.pack(len(content)) + content)


def receive(connection: socket.socket) -> bytes:
    """The next message; empty when the other end closed before it was complete."""
    head = _exactly(connection, LENGTH.size)
    if len(head) < LENGTH.size or (size := LENGTH.unpack(head)[0]) > MAX_BYTES:
        return b""
    content = _exactly(connection, size)
    return content if len(content) == size else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    try:
        while len(content) < size and (piece := connection.recv(min(size - len(content), 1 << 20))):
            content += piece
    except ConnectionError:
        pass
    return bytes(content)


def _import_path() -> str:
    """The directories that this process imports from: the user's modules must be found by the workers, too."""
    return os.pathsep.join(str(Path(entry or ".").resolve()) for entry in sys.path)
