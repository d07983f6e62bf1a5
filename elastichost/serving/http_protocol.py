"""Connections with timeouts: clients are cut off that send the head of a request slowly, do not take the answer, or
have got it and do not send the rest of a body that no route has read."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["TimedProtocol"]

TOO_SLOW = b'{"error":{"code":"too_slow","message":"the head of the request did not arrive in time"}}'


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with `header_timeout_s` of the state that the application's lifespan yields."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._timeout_s = float(self.app_state["header_timeout_s"])
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self._timeout_s, self._refuse)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_in_head = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        is_in_unread_body = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        if is_in_unread_body and self._body_timer is None:
            self._body_timer = self.loop.call_later(self._timeout_s, self.transport.abort)
        elif not is_in_unread_body:
            self._stop_body_timer()
        if not is_in_head:
            self._stop_head_timer()
        elif self._head_timer is None:  # a further request on this connection
            self._head_timer = self.loop.call_later(self._timeout_s, self._refuse)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_body_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._answer_timer is None:
            self._answer_timer = self.loop.call_later(self._timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _refuse(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self.conn.our_state is not h11.IDLE:
            return
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(TOO_SLOW))),
            ("connection", "close"),
        ]
        for event in (h11.Response(status_code=408, headers=headers), h11.Data(data=TOO_SLOW), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
