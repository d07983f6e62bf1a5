"""Reads the body of a request, within limits of size, memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from elastichost.serving.request_error import RequestError
from elastichost.serving.settings import ServeSettings
from elastichost.serving.telemetry import Telemetry

__all__ = ["request_body"]

DISCARDED_BYTES = 64 << 20  # of a body that is too large: a client reads no answer before it has sent all


@asynccontextmanager
async def request_body(request: Request, settings: ServeSettings, telemetry: Telemetry) -> AsyncIterator[bytes]:
    """The body. It counts as memory of the server while the context lasts. Raises RequestError: too large (413), too
    slow (408), or too many bodies at once (503)."""
    held = _Held(telemetry)
    try:
        try:
            async with asyncio.timeout(settings.body_timeout_s):
                body = await _read(request, settings, held)
        except TimeoutError:
            message = f"the body did not arrive within {settings.body_timeout_s:g} s"
            raise RequestError(408, "too_slow", message, closes=True) from None
        yield body
    finally:
        held.forget()


class _Held:
    """The bytes of one body in memory."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.size_bytes = 0
        self._telemetry = telemetry

    def add(self, size_bytes: int) -> int:
        """Returns the bytes of all bodies."""
        self.size_bytes += size_bytes
        self._telemetry.buffered_bytes += size_bytes
        return self._telemetry.buffered_bytes

    def forget(self) -> None:
        self._telemetry.buffered_bytes -= self.size_bytes
        self.size_bytes = 0


async def _read(request: Request, settings: ServeSettings, held: _Held) -> bytes:
    chunks: list[bytes] = []
    stream = request.stream()  # one for the whole body: a request gives no second one after its last bytes
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > settings.max_body_bytes:
        await _discard(request, stream, int(announced))
        raise _too_large(settings.max_body_bytes)
    async for chunk in stream:
        in_memory_bytes = held.add(len(chunk))
        if held.size_bytes > settings.max_body_bytes:
            chunks.clear()
            held.forget()
            await _discard(request, stream, DISCARDED_BYTES)
            raise _too_large(settings.max_body_bytes)
        if in_memory_bytes > settings.buffered_bytes:
            raise RequestError(503, "busy", "too many bodies are being received", retry_after_s=1, closes=True)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> RequestError:
    message = f"the body has more than {limit} bytes: send fewer rows in a request"
    return RequestError(413, "too_large", message, closes=True)


async def _discard(request: Request, stream: AsyncIterator[bytes], announced: int) -> None:
    """Reads and forgets the rest of a body, unless it is huge or the client waits for leave to send it."""
    if request.headers.get("expect", "").lower() == "100-continue" or announced > DISCARDED_BYTES:
        return
    left = DISCARDED_BYTES
    async for chunk in stream:
        left -= len(chunk)
        if left < 0:
            return
