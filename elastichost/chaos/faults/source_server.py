"""A web server that gives files in ranges as slowly as asked, and stalls, resets connections or slows down on request.

It runs as a process of its own (`source_process`): `python -m elastichost.chaos.faults.source_server FOLDER ...`.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import quote, unquote

import msgspec

from elastichost.chaos.faults.source_process import Order, SourceProcess

__all__ = ["SourceServer"]

PIECE_BYTES = 1 << 16
SEND_BUFFER_BYTES = 1 << 16  # a larger one would take bytes faster than the rate
LONGEST_NAP_S = 0.05  # so that a fault ends on time


class SourceServer(SourceProcess):
    """A server process for the files of a folder; use as a context manager. bytes_per_s, latency_s: of each connection;
    link_bytes_per_s: of all together. 0: no limit. jitter_s: a request waits longer by up to this time."""

    def __init__(
        self,
        folder: Path,
        bytes_per_s: float = 0.0,
        latency_s: float = 0.0,
        link_bytes_per_s: float = 0.0,
        jitter_s: float = 0.0,
        environment: dict[str, str] | None = None,
    ) -> None:
        options = {"bytes-per-s": bytes_per_s, "latency-s": latency_s, "link-bytes-per-s": link_bytes_per_s}
        words = [f"--{name}={value}" for name, value in (options | {"jitter-s": jitter_s}).items()]
        super().__init__("elastichost.chaos.faults.source_server", [str(folder), *words], environment)

    def url(self, name: str) -> str:
        """The address of a file of the folder."""
        return f"http://127.0.0.1:{self.port}/{quote(name)}"


# --- the process ------------------------------------------------------------------------------------------------------


class _State:
    """What all connections of the server share. Times are of the monotonic clock."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.folder = Path(chosen.folder)
        self.rate, self.latency_s = float(chosen.bytes_per_s), float(chosen.latency_s)
        self.link, self.jitter_s = float(chosen.link_bytes_per_s), float(chosen.jitter_s)
        self.stalled_until_s = self.slow_until_s = self.refused_until_s = 0.0
        self.factor, self.resets, self.requests = 1.0, 0, 0
        self.gone_s: SimpleQueue[float] = SimpleQueue()  # seconds for which nothing is to listen
        self._lock, self._link_free_s = threading.Lock(), 0.0

    def take(self, order: Order) -> None:
        until_s = time.monotonic() + order.seconds
        match order.fault:
            case "stall":
                self.stalled_until_s = until_s
            case "slow":
                self.slow_until_s, self.factor = until_s, order.factor
            case "refuse":
                self.refused_until_s = until_s
            case "reset":
                self.resets += 1
            case "gone":
                self.resets += 1
                self.gone_s.put(order.seconds)

    def wait_until_s(self, free_s: float, size_bytes: int) -> float:
        """When a piece of a connection that is free at `free_s` may be sent."""
        now_s = time.monotonic()
        factor = self.factor if now_s < self.slow_until_s else 1.0
        rate = self.rate * factor
        due_s = max(free_s, now_s - 0.05) + (size_bytes / rate if rate else 0.0)
        if self.link:
            with self._lock:
                self._link_free_s = max(self._link_free_s, now_s - 0.05) + size_bytes / (self.link * factor)
                due_s = max(due_s, self._link_free_s)
        return due_s

    def late_s(self) -> float:
        """How much longer than the latency the next request waits: 0, 1/4, 2/4, 3/4 of the jitter in turn, and all."""
        with self._lock:
            self.requests += 1
            return self.jitter_s * (self.requests * 7 % 5) / 4


class _ResetError(Exception):
    """The connection ends now, without a proper end."""


class _RangeHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state: _State

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._free_s, self._resets = time.monotonic(), self.state.resets

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Is silent."""

    def do_GET(self) -> None:
        """Answers one request for a range."""
        try:
            self._answer()
        except (_ResetError, ConnectionError, BrokenPipeError):
            with contextlib.suppress(OSError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

    def _answer(self) -> None:
        self._rest(time.monotonic() + self.state.latency_s + self.state.late_s())
        path = (self.state.folder / unquote(self.path).lstrip("/")).resolve()
        if time.monotonic() < self.state.refused_until_s:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        if not path.is_relative_to(self.state.folder.resolve()) or not path.is_file():
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        facts = path.stat()
        start, stop = self._bounds(facts.st_size)
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{facts.st_size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{facts.st_mtime_ns}-{facts.st_size}"')
        self.end_headers()
        with path.open("rb") as file:
            file.seek(start)
            while start < stop:
                piece = file.read(min(PIECE_BYTES, stop - start))
                self._free_s = self.state.wait_until_s(self._free_s, len(piece))
                self._rest(self._free_s)
                self.wfile.write(piece)
                start += len(piece)

    def _bounds(self, size: int) -> tuple[int, int]:
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start = min(int(first), size)
        return start, min(size, int(last) + 1) if last else size

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _rest(self, until_s: float) -> None:
        """Waits until this time, and to the end of a stall. Raises _ResetError."""
        while True:
            if self.state.resets != self._resets:
                self._resets = self.state.resets
                raise _ResetError
            left_s = max(until_s, self.state.stalled_until_s) - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, LONGEST_NAP_S))


class _QuietServer(ThreadingHTTPServer):
    """A client may go away at any time, as one that is killed does: that is no error of the server."""

    daemon_threads = True

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _listening(state: _State, port: int) -> ThreadingHTTPServer:
    """A server that accepts connections from now on."""
    server = _QuietServer(("127.0.0.1", port), type("Handler", (_RangeHandler,), {"state": state}))
    threading.Thread(target=server.serve_forever, args=(LONGEST_NAP_S,), daemon=True).start()
    return server


def _come_and_go(state: _State, server: ThreadingHTTPServer) -> None:
    """Has nothing listen for a while, whenever that is ordered."""
    port = server.server_address[1]
    while True:
        seconds = state.gone_s.get()
        server.shutdown()
        server.socket.close()
        time.sleep(seconds)
        server = _listening(state, port)


def main(argv: Sequence[str] | None = None) -> None:
    """Serves until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    for name in ("--bytes-per-s", "--latency-s", "--link-bytes-per-s", "--jitter-s"):
        parser.add_argument(name, type=float, default=0.0)
    state = _State(parser.parse_args(argv))
    server = _listening(state, 0)
    threading.Thread(target=_come_and_go, args=(state, server), daemon=True).start()
    print(server.server_address[1], flush=True)
    decoder = msgspec.json.Decoder(Order)
    for line in sys.stdin.buffer:
        state.take(decoder.decode(line))


if __name__ == "__main__":
    main()
