"""A TCP proxy before the server of training data, which stalls, resets, slows down, refuses or is gone on request.

The bytes of requests and answers pass unchanged, so the server may be any that speaks HTTP: a web server, or a store
that speaks S3. It runs as a process of its own (`source_process`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence

import msgspec

from elastichost.chaos.faults.source_process import Order, SourceProcess

__all__ = ["SourceProxy"]

PIECE_BYTES = 1 << 16
NAP_S = 0.02  # so that a fault ends on time
REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class SourceProxy(SourceProcess):
    """A proxy process before the server at this host and port; use as a context manager. bytes_per_s: of all answers
    together; 0: no limit."""

    def __init__(self, host: str, port: int, bytes_per_s: float = 0.0) -> None:
        super().__init__("elastichost.chaos.faults.source_proxy", [host, str(port), f"--bytes-per-s={bytes_per_s}"])

    @property
    def endpoint(self) -> str:
        """The address of the proxy, without a path."""
        return f"http://127.0.0.1:{self.port}"


# --- the process ------------------------------------------------------------------------------------------------------


class _Proxy:
    """All connections, in one event loop. Times are of the monotonic clock."""

    def __init__(self, host: str, port: int, bytes_per_s: float) -> None:
        self._host, self._port, self._rate = host, port, bytes_per_s
        self._stalled_until_s = self._slow_until_s = self._refused_until_s = 0.0
        self._factor, self._free_s = 1.0, 0.0
        self._listener: asyncio.Server | None = None
        self._returns: asyncio.TimerHandle | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def listen(self) -> None:
        """Accepts connections, at the port of before."""
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._listener.sockets[0].getsockname()[1]

    def take(self, order: Order) -> None:
        until_s = time.monotonic() + order.seconds
        match order.fault:
            case "stall":
                self._stalled_until_s = until_s
            case "slow":
                self._slow_until_s, self._factor = until_s, order.factor
            case "refuse":
                self._refused_until_s = until_s
            case "reset":
                self._reset_all()
            case "gone":
                self._leave(order.seconds)

    def _leave(self, seconds: float) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._reset_all()
        loop = asyncio.get_running_loop()
        if self._returns is not None:
            self._returns.cancel()
        self._returns = loop.call_later(seconds, lambda: loop.create_task(self.listen()))

    def _reset_all(self) -> None:
        for writer in tuple(self._open):
            _reset(writer)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the process ends
            await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            _reset(writer)
            self._open.discard(writer)
            return
        self._open.add(server_writer)
        ways = (self._requests(reader, server_writer, writer), self._answers(server_reader, writer))
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (writer, server_writer):
            self._open.discard(one)
            one.close()

    async def _requests(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while piece := await reader.read(PIECE_BYTES):
            if time.monotonic() < self._refused_until_s:
                client.write(REFUSAL)
                await client.drain()
                return
            await self._rest(0.0)
            server.write(piece)
            await server.drain()

    async def _answers(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        began_s = time.monotonic()
        while piece := await reader.read(PIECE_BYTES):
            await self._rest(self._due_s(len(piece), began_s))
            client.write(piece)
            await client.drain()
            began_s = time.monotonic()

    def _due_s(self, size_bytes: int, began_s: float) -> float:
        """When a piece may be sent. A proxy without a rate of its own slows down by waiting in proportion to the time
        that the piece took to come."""
        now_s = time.monotonic()
        factor = self._factor if now_s < self._slow_until_s else 1.0
        if not self._rate:
            return now_s + (now_s - began_s) * (1.0 / factor - 1.0)
        self._free_s = max(self._free_s, now_s - 0.05) + size_bytes / (self._rate * factor)
        return self._free_s

    async def _rest(self, until_s: float) -> None:
        """Waits until this time, and to the end of a stall."""
        while (left_s := max(until_s, self._stalled_until_s) - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, NAP_S))


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection without a proper end."""
    with contextlib.suppress(OSError):
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _serve(chosen: argparse.Namespace) -> None:
    proxy = _Proxy(chosen.host, chosen.port, chosen.bytes_per_s)
    await proxy.listen()
    print(proxy.port, flush=True)
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()

    def orders() -> None:
        decoder = msgspec.json.Decoder(Order)
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(proxy.take, decoder.decode(line))
        loop.call_soon_threadsafe(is_over.set)

    threading.Thread(target=orders, daemon=True).start()
    await is_over.wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Passes bytes on until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--bytes-per-s", type=float, default=0.0)
    asyncio.run(_serve(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
