"""A source of bytes that all jobs of a batch share, as they would share a disk or a link: a fixed rate for all
together, divided equally among those that ask, and no limit of a single connection.

A reader connects to a socket and sends the number of bytes that it wants, as 8 bytes; the source sends as many zeros.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Self

__all__ = ["SOURCE_VARIABLE", "SharedSource", "SourceConnection"]

SOURCE_VARIABLE = "COLOCATE_SOURCE"  # names the socket in the environment of the jobs
TURN_S = 0.01
REQUEST = struct.Struct("<Q")
MOST_BURST_S = 0.05  # bytes that no reader takes for this time are lost, as with an idle disk
ZEROS = memoryview(bytes(1 << 20))


class SharedSource:
    """The source; use it as a context manager. A thread serves it."""

    def __init__(self, path: Path, bytes_per_s: float) -> None:
        self.path, self._rate = path, bytes_per_s
        self._wanted: dict[socket.socket, int] = {}
        self._is_closing = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="shared source", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join()
        for one in (*self._wanted, self._listener):
            one.close()
        self._selector.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        free, last_s = 0.0, time.monotonic()
        while not self._is_closing.is_set():
            for key, _ in self._selector.select(timeout=0 if any(self._wanted.values()) else TURN_S):
                self._take(key.fileobj)  # type: ignore[arg-type]
            now_s = time.monotonic()
            free += self._rate * (
                now_s - last_s
            )  # all of it, however late the thread is: that is no limit of the source
            last_s = now_s
            free = min(free - self._give(int(free)), self._rate * MOST_BURST_S)
            time.sleep(TURN_S)

    def _take(self, one: socket.socket) -> None:
        """A new connection, a request, or the end of a connection."""
        if one is self._listener:
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._wanted[connection] = 0
            self._selector.register(connection, selectors.EVENT_READ)
            return
        try:
            request = one.recv(REQUEST.size)
        except OSError:
            request = b""
        if len(request) < REQUEST.size:
            self._forget(one)
        else:
            self._wanted[one] += REQUEST.unpack(request)[0]

    def _give(self, free: int) -> int:
        """Sends at most `free` bytes, in equal parts. Returns the bytes sent."""
        sent = 0
        waiting = sorted((one for one, wanted in self._wanted.items() if wanted), key=lambda one: self._wanted[one])
        for position, one in enumerate(waiting):
            part = min(self._wanted[one], (free - sent) // (len(waiting) - position), len(ZEROS))
            try:
                gone = one.send(ZEROS[:part]) if part else 0
            except BlockingIOError:
                continue  # its buffer is full
            except OSError:
                self._forget(one)
                continue
            self._wanted[one] -= gone
            sent += gone
        return sent

    def _forget(self, one: socket.socket) -> None:
        self._selector.unregister(one)
        del self._wanted[one]
        one.close()


class SourceConnection:
    """A reader's connection to the source. It reads with `read`, whose bytes the kernel counts for the process."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)

    def fetch(self, size_bytes: int) -> None:
        """Returns when as many bytes have arrived. Raises ConnectionError if the source has ended."""
        self._socket.sendall(REQUEST.pack(size_bytes))
        while size_bytes:
            got = len(os.read(self._socket.fileno(), min(size_bytes, len(ZEROS))))
            if not got:
                raise ConnectionError("the shared source has ended")
            size_bytes -= got

    def close(self) -> None:
        self._socket.close()
