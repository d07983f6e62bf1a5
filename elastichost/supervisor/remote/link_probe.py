"""Tests whether one machine reaches another at an address, and measures the speed of the link in one direction.

One end listens at a port for some seconds, and the other connects. To measure the speed, one end sends for STREAM_S and
the other counts the bytes that arrive. The first quarter of the bytes is not timed: TCP begins slowly, and a token
bucket lets its saved tokens pass faster than the link's own rate.
"""

from __future__ import annotations

import contextlib
import socket
import time

__all__ = ["LEAST_BYTES", "knock", "open_door", "receive_stream", "send_stream", "speed_of"]

KNOCK_TIMEOUT_S = 3.0
STREAM_S = 0.4
PATIENCE_S = 5.0  # bytes that were sent may wait in buffers for some seconds
PIECE = bytes(64 * 1024)
LEAST_BYTES = 16 * 1024  # fewer bytes do not show the speed


def open_door(address: str) -> socket.socket:
    """A socket that listens at any free port of this address; the caller closes it. Raises OSError when the address
    does not belong to this machine."""
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
    """Tries to connect. Returns "", or why it cannot connect."""
    try:
        socket.create_connection((address, port), KNOCK_TIMEOUT_S).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def send_stream(address: str, port: int, stream_s: float = STREAM_S) -> None:
    """Sends zeros for `stream_s` seconds, and waits until the other end has received them. Raises OSError."""
    with socket.create_connection((address, port), PATIENCE_S) as line:
        line.settimeout(PATIENCE_S)
        deadline_s = time.monotonic() + stream_s
        while time.monotonic() < deadline_s:
            line.sendall(PIECE)
        line.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            line.recv(1)  # returns when the other end has received everything and closes the connection


def receive_stream(door: socket.socket, patience_s: float = PATIENCE_S) -> float:
    """The speed in bytes per second of the first stream that comes to a listening socket; 0.0 when none comes within
    `patience_s`, or too few bytes come."""
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
    """The speed in bytes per second, without the first quarter of the bytes; 0.0 below LEAST_BYTES. arrivals: (time in
    seconds, bytes received until then). Pure."""
    if not arrivals or arrivals[-1][1] < LEAST_BYTES:
        return 0.0
    last_s, total = arrivals[-1]
    first_s, before = next((at_s, so_far) for at_s, so_far in arrivals if 4 * so_far >= total)
    return (total - before) / (last_s - first_s) if last_s > first_s else 0.0
