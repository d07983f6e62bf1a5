"""The actor on a Ray node: starts the host's agent as its child, and carries the agent's input and output.

The relay sends this class to the node by value (its code, not its module's name), and the class uses only the standard
library. So the actor also starts on a node without elastichost or with an old one; the agent reports that, as over ssh.

Each direction is one stream of bytes with positions, and has at most one call under way. When a connection breaks, the
relay cannot know whether its call has arrived. It repeats the call with the same position, which then changes nothing.
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
# A relay calls `read` all the time. Ray ends an actor whose relay has ended; this limit is for when Ray cannot notice.
LONELY_S = 60.0


class Carrier:
    """The actor of one agent. Methods may be called from several threads.

    end: ends this process (os._exit). It is called when `read` was not called for `lonely_s`; the end of the process
    closes the agent's input.
    """

    def __init__(self, end: Callable[[int], object], lonely_s: float = LONELY_S) -> None:
        self._end, self._lonely_s = end, lonely_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open until this process ends
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._written = 0  # bytes that were written to the agent's input
        self._kept, self._kept_at = b"", 0  # the newest piece of output and its position, for a repeated `read`
        self._asked_s = time.monotonic()

    def begin(self, command: bytes) -> str:
        """Starts the agent. command: its arguments, separated by null bytes. Returns "", or why it cannot start."""
        argv = [part.decode() for part in command.split(b"\0")]
        try:
            self._process = process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                start_new_session=True,  # the agent cleans up even when Ray kills the actor's process group
            )
        except OSError as error:
            return f"{argv[0]}: {error.strerror}"
        assert process.stdin is not None and process.stdout is not None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # the user's limit for pipes may be lower
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        threading.Thread(target=self._end_when_lonely, daemon=True).start()
        return ""

    @property
    def _begun(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def write(self, position: int, data: bytes) -> None:
        """Writes `data`, which begins at `position` of the agent's input; bytes that were written before are skipped.
        Waits until the pipe has taken all. Ignores an agent that has ended: `read` reports that."""
        stream = self._begun.stdin
        assert stream is not None
        with self._writing:
            left = memoryview(data)[self._written - position :]
            with contextlib.suppress(OSError, ValueError):
                while left:
                    left = left[os.write(stream.fileno(), left) :]
            self._written = position + len(data)

    def end_input(self) -> None:
        """Closes the agent's input, which ends the agent. May be called again."""
        stream = self._begun.stdin
        assert stream is not None
        with contextlib.suppress(OSError):
            stream.close()

    def read(self, position: int) -> bytes | None:
        """The agent's output from `position`, at most PIECE_BYTES. Returns b"" when there is none within
        READ_PATIENCE_S, None when the output has ended."""
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
        """The agent's exit code and the last LAST_WORDS_BYTES of its stderr. Call it when its output has ended."""
        code = self._begun.wait()
        size = os.fstat(self._stderr.fileno()).st_size
        return code, os.pread(self._stderr.fileno(), LAST_WORDS_BYTES, max(0, size - LAST_WORDS_BYTES))

    def _end_when_lonely(self) -> None:
        while (left_s := self._asked_s + self._lonely_s - time.monotonic()) > 0:
            time.sleep(left_s)
        self._end(1)
