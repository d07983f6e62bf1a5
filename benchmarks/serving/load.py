"""Clients that ask one after another over connections that stay open, in a process of their own.

    python -m benchmarks.serving.load PORT CLIENTS SECONDS FILE...

A FILE is the body of a request. The clients speak HTTP over plain sockets: a library for it would need more CPU than
the server that is measured. The result is one JSON object on stdout (`Load`).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

__all__ = ["Load", "measure"]

WARM_UP = 0.2  # of the seconds: not counted
CONTENT_TYPES = {".json": "application/json", ".arrow": "application/vnd.apache.arrow.stream"}


class Load(msgspec.Struct, frozen=True):
    """What clients saw. failed: answers other than 200."""

    clients: int
    requests: int
    failed: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds


def measure(port: int, clients: int, seconds: float, bodies: Sequence[Path]) -> Load:
    """Lets clients ask the server at this port. Raises CalledProcessError, with the reason on stderr."""
    command = [sys.executable, "-m", "benchmarks.serving.load", str(port), str(clients), str(seconds)]
    done = subprocess.run([*command, *map(str, bodies)], stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Load)


async def _client(
    port: int, requests: Sequence[bytes], first: int, until_s: float, times: list[tuple[float, float, bool]]
) -> None:
    """Asks until the time is over. Adds (when it ended, how long it took, whether it was answered with 200)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = first
    while (began_s := perf_counter()) < until_s:
        writer.write(requests[number % len(requests)])
        number += 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        ended_s = perf_counter()
        times.append((ended_s, ended_s - began_s, head.startswith(b"HTTP/1.1 200")))
    writer.close()


async def _load(port: int, clients: int, seconds: float, requests: Sequence[bytes]) -> Load:
    times: list[tuple[float, float, bool]] = []
    began_s = perf_counter()
    await asyncio.gather(*(_client(port, requests, first, began_s + seconds, times) for first in range(clients)))
    warm_s = began_s + WARM_UP * seconds
    counted = [(took_s, is_good) for ended_s, took_s, is_good in times if ended_s >= warm_s]
    took_ms = np.array([took_s for took_s, is_good in counted if is_good]) * 1e3
    p50_ms, p99_ms = np.percentile(took_ms, (50, 99)).tolist() if len(took_ms) else (float("nan"), float("nan"))
    last_s = max((ended_s for ended_s, _, _ in times), default=warm_s)
    return Load(clients, len(took_ms), len(counted) - len(took_ms), last_s - warm_s, p50_ms, p99_ms)


def _request(port: int, body: Path) -> bytes:
    content = body.read_bytes()
    head = (
        f"POST /predict HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: {CONTENT_TYPES[body.suffix]}\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def main() -> None:
    port, clients, seconds, *bodies = sys.argv[1:]
    requests = [_request(int(port), Path(body)) for body in bodies]
    found = asyncio.run(_load(int(port), int(clients), float(seconds), requests))
    sys.stdout.write(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
