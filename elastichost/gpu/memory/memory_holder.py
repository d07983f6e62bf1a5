"""Keeps the file descriptors of GPU memory while no other process has it: `python -I memory_holder.py DIRECTORY`.

A worker starts it (`held_memory`) and gives it the descriptors. When the worker is killed, the memory exists on,
because this process has the descriptors, and the worker's successor asks for them. This process never uses the GPU,
needs only Python's standard library, and has a session of its own, so that it survives worker, fork server and
supervisor.

It ends when its socket in DIRECTORY, the arena, is gone or belongs to another holder. So the memory is freed when the
arena is removed, by whichever process.

One request in one packet, as JSON: {"keep": TOKEN, "sizes": [...]} with descriptors, {"give": TOKEN}, {"drop": TOKEN}.
The answer is {"sizes": [...]} with descriptors, or {"sizes": null}: nothing is held under this token.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["LARGEST_PACKET", "MOST_PIECES", "SOCKET_NAME", "address_in", "main"]

SOCKET_NAME = "gpu-memory"
LARGEST_PACKET = 16_384
MOST_PIECES = 253  # descriptors in one packet: SCM_MAX_FD of Linux
LOOK_EVERY_S = 0.5


def address_in(directory: int, name: str = SOCKET_NAME) -> str:
    """The address of the socket in an open directory. A path through /proc is short enough for any directory."""
    return f"/proc/self/fd/{directory}/{name}"


class Holder:
    """Holds the descriptors of one token."""

    def __init__(self) -> None:
        self._token = ""
        self._sizes: list[int] = []
        self._held: list[int] = []

    def answer(self, connection: socket.socket) -> None:
        """Takes one request and answers it. A request of another form is not answered. Raises OSError for a connection
        that fails, ValueError for a packet that is no JSON."""
        packet, descriptors, _, _ = socket.recv_fds(connection, LARGEST_PACKET, MOST_PIECES)
        kept = False
        try:
            match json.loads(packet):
                case {"keep": str(token), "sizes": [*sizes]} if len(sizes) == len(descriptors) > 0:
                    self._drop()
                    self._token, self._sizes, self._held, kept = token, sizes, list(descriptors), True
                    self._say(connection, token)
                case {"give": str(token)}:
                    self._say(connection, token, self._held)
                case {"drop": str(token)}:
                    if token == self._token:
                        self._drop()
                    self._say(connection, token)
        finally:
            if not kept:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _say(self, connection: socket.socket, token: str, given: Sequence[int] = ()) -> None:
        is_held = token == self._token and bool(self._held)
        said = json.dumps({"sizes": self._sizes if is_held else None}).encode()
        socket.send_fds(connection, [said], list(given) if is_held else [])

    def _drop(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)
        self._token, self._sizes, self._held = "", [], []


def main(arguments: list[str]) -> None:
    """Serves until the socket is gone. The end of a job on a cluster sends signals to every process, and the final
    checkpoint may still need the memory."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory = os.open(arguments[0], os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    making = f"{SOCKET_NAME}.{os.getpid()}"
    listener.bind(address_in(directory, making))
    listener.listen()
    os.rename(address_in(directory, making), address_in(directory))
    own = _identity(directory)
    holder = Holder()
    while own is not None and _identity(directory) == own:
        ready, _, _ = select.select([listener], [], [], LOOK_EVERY_S)
        if not ready:
            continue
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(LOOK_EVERY_S)
            holder.answer(connection)


def _identity(directory: int) -> tuple[int, int] | None:
    """The file that the socket's name means; None: it is gone."""
    try:
        found = Path(address_in(directory)).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


if __name__ == "__main__":
    main(sys.argv[1:])
