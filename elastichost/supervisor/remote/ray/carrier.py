"""The actor of a node of Ray: it has the agent of that host as its child, and carries what that says and is told.

Ray gets this class by its text, not by its name, and it uses the standard library alone: a node whose elastichost is
missing or old is then found out by its agent, as over ssh. Nothing but bytes is handed over.

Each direction is one stream of bytes with positions, and has one call under way. A call that may or may not have
arrived (a cut connection) is made again with the same position, and changes nothing then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

__all__ = ["Carrier"]

PIECE_BYTES = 1 << 20
READ_PATIENCE_S = 1.0
LAST_WORDS_BYTES = 4000
# Its relay asks all the time. Ray ends an actor whose relay has ended; this is for when Ray cannot tell.
LONELY_S = 60.0


class Carrier:
    """Of one agent. Methods may be called from several threads.

    end: ends this process (os._exit), and with it the agent's input, when nobody has read for `lonely_s`.
    """

    def __init__(self, end: Callable[[int], object], lonely_s: float = LONELY_S) -> None:
        self._end, self._lonely_s = end, lonely_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._written = 0  # bytes of its input that it has been given
        self._kept, self._kept_at = b"", 0  # of its output: the newest piece, until a later one is asked for
        self._asked_s = time.monotonic()

    def begin(self, command: bytes) -> str:
        """Starts it; command: argv, as /proc tells it. "" or why it cannot be started."""
        argv = [part.decode() for part in command.split(b"\0")]
        try:
            self._process = process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                start_new_session=True,  # it cleans up after itself, also when Ray kills the actor's group
            )
        except OSError as error:
            return f"{argv[0]}: {error.strerror}"
        assert process.stdin is not None and process.stdout is not None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # as large as its user may have
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        threading.Thread(target=self._end_when_lonely, daemon=True).start()
        return ""

    @property
    def _begun(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def write(self, position: int, data: bytes) -> None:
        """Of its input, from a position on. Waits until it has taken it; it takes nothing once it has ended, which
        `read` says."""
        stream = self._begun.stdin
        assert stream is not None
        with self._writing:
            left = memoryview(data)[self._written - position :]
            with contextlib.suppress(OSError, ValueError):
                while left:
                    left = left[os.write(stream.fileno(), left) :]
            self._written = position + len(data)

    def end_input(self) -> None:
        """It ends with its input."""
        stream = self._begun.stdin
        assert stream is not None
        with contextlib.suppress(OSError):
            stream.close()

    def read(self, position: int) -> bytes | None:
        """Of its output, from a position on; b"": nothing yet; None: that was all."""
        self._asked_s = time.monotonic()
        stream = self._begun.stdout
        assert stream is not None
        with self._reading:
            if position == self._kept_at and self._kept:
                return self._kept
            poller = select.poll()
            poller.register(stream.fileno(), select.POLLIN)
            if not poller.poll(READ_PATIENCE_S * 1000):
                return b""
            data = os.read(stream.fileno(), PIECE_BYTES)
            self._kept, self._kept_at = data, position
            return data or None

    def outcome(self) -> tuple[int, bytes]:
        """Once its output has ended: its exit code, and the end of what it wrote to stderr."""
        code = self._begun.wait()
        size = os.fstat(self._stderr.fileno()).st_size
        return code, os.pread(self._stderr.fileno(), LAST_WORDS_BYTES, max(0, size - LAST_WORDS_BYTES))

    def _end_when_lonely(self) -> None:
        while (left_s := self._asked_s + self._lonely_s - time.monotonic()) > 0:
            time.sleep(left_s)
        self._end(1)
