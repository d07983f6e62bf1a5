"""Whether one machine reaches another at an address, and how fast the link carries bytes one way.

One end listens at a port for a moment, the other connects. For the speed one end sends for a moment, and the other
counts what comes. The first quarter of what came is not timed: TCP begins slowly, and what a bucket of tokens had saved
up is not the link's speed.
"""

from __future__ import annotations

import contextlib
import socket
import time

__all__ = ["LEAST_BYTES", "knock", "open_door", "receive_stream", "send_stream", "speed_of"]

KNOCK_TIMEOUT_S = 3.0
STREAM_S = 0.4
PATIENCE_S = 5.0  # what was sent may lie in buffers for as long
PIECE = bytes(64 * 1024)
LEAST_BYTES = 16 * 1024  # with less nothing can be said


def open_door(address: str) -> socket.socket:
    """Listens at any port of this address; close it. Raises OSError when it is none of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.bind((address, 0))
        door.listen(8)
    except OSError:
        door.close()
        raise
    return door


def knock(address: str, port: int) -> str:
    """ "" when somebody listens there, or why that is not seen."""
    try:
        socket.create_connection((address, port), KNOCK_TIMEOUT_S).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def send_stream(address: str, port: int, stream_s: float = STREAM_S) -> None:
    """Sends zeros for so long. Raises OSError."""
    with socket.create_connection((address, port), PATIENCE_S) as line:
        line.settimeout(PATIENCE_S)
        deadline_s = time.monotonic() + stream_s
        while time.monotonic() < deadline_s:
            line.sendall(PIECE)
        line.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            line.recv(1)  # the other end has it all


def receive_stream(door: socket.socket, patience_s: float = PATIENCE_S) -> float:
    """Bytes a second of the first stream that comes to a door; 0.0: none came in time, or too little of it."""
    door.settimeout(patience_s)
    arrivals: list[tuple[float, int]] = []
    try:
        line, _ = door.accept()
        with line:
            line.settimeout(patience_s)
            total = 0
            while part := line.recv(1 << 18):
                total += len(part)
                arrivals.append((time.monotonic(), total))
    except OSError:
        pass
    return speed_of(arrivals)


def speed_of(arrivals: list[tuple[float, int]]) -> float:
    """Bytes a second. arrivals: (when, bytes up to then). Pure."""
    if not arrivals or arrivals[-1][1] < LEAST_BYTES:
        return 0.0
    last_s, total = arrivals[-1]
    first_s, before = next((at_s, so_far) for at_s, so_far in arrivals if 4 * so_far >= total)
    return (total - before) / (last_s - first_s) if last_s > first_s else 0.0
