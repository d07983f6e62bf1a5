"""The server of the page: on 127.0.0.1, read-only, for whoever has its address with the token."""

from __future__ import annotations

import json
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from markupsafe import Markup

from elastichost.errors import PreflightError
from elastichost.metrics import read_status
from elastichost.reporting.render.pages import LIVE_FILES, static_text
from elastichost.web.access import cookie_of, refusal
from elastichost.web.live_page import POLICY, LivePage
from elastichost.web.prometheus import CONTENT_TYPE, metrics_of

__all__ = ["PageServer"]

STATIC = "/static/"
EVERY_S = 2.0  # between two looks at what has changed
SILENCE_S = 15.0  # after this time a comment is sent, so that a connection that is gone is noticed
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer:
    """Serves the page of one run. port: 0 takes a free one. Raises PreflightError if the port is taken.

    address: of the page, with the token."""

    def __init__(self, run_dir: Path, port: int = 0) -> None:
        self.run_dir, self.page = run_dir, LivePage(run_dir)
        self.token = secrets.token_urlsafe(24)
        self.is_closing = threading.Event()
        try:
            self._server = _Server(self, port)
        except OSError as error:
            raise PreflightError(
                f"port {port} of 127.0.0.1 cannot be used: {error.strerror}", hint="choose another one, or --port 0"
            ) from error
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/?token={self.token}"

    def serve(self) -> None:
        """Answers requests until `close` is called from another thread, or KeyboardInterrupt comes."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Ends `serve` and all connections."""
        self.is_closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, owner: PageServer, port: int) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60  # for a peer that connects and says nothing

    def do_GET(self) -> None:
        owner = self.server.owner
        headers = {name.lower(): value for name, value in self.headers.items()}
        if reason := refusal(self.path, headers, owner.port, owner.token):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", reason + "\n")
            return
        try:
            self._route(urlsplit(self.path).path)
        except PreflightError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{error}\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the reader has closed the page

    def _route(self, path: str) -> None:
        owner = self.server.owner
        match path:
            case "/":
                self._answer(HTTPStatus.OK, "text/html; charset=utf-8", owner.page.page(), sets_cookie=True)
            case _ if path.startswith(STATIC) and path.removeprefix(STATIC) in LIVE_FILES:
                name = path.removeprefix(STATIC)
                kind = "text/javascript" if name.endswith(".js") else "text/css"
                self._answer(HTTPStatus.OK, f"{kind}; charset=utf-8", static_text(name))
            case "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, metrics_of(read_status(owner.run_dir)))
            case "/events":
                self._stream()
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", "there is no such page\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str, *, sets_cookie: bool = False) -> None:
        content = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if sets_cookie:
            owner = self.server.owner
            cookie = f"{cookie_of(owner.port)}={owner.token}"
            self.send_header("Set-Cookie", f"{cookie}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        """Server-sent events: `parts` with the parts that have changed, and `ended` at the end of the run."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True  # the stream has no length: its end is the end of the connection
        owner, sent, said_s = self.server.owner, dict[str, Markup](), time.monotonic()
        while not owner.is_closing.is_set():
            parts = owner.page.parts()
            changed = {part: html for part, html in parts.items() if sent.get(part) != html}
            if changed:
                self._send("parts", json.dumps(changed))
                sent, said_s = parts, time.monotonic()
            if owner.page.has_ended:
                self._send("ended", "{}")
                return
            if time.monotonic() - said_s > SILENCE_S:
                self.wfile.write(b": still here\n\n")
                said_s = time.monotonic()
            owner.is_closing.wait(EVERY_S)

    def _send(self, event: str, data: str) -> None:
        self.wfile.write(f"event: {event}\ndata: {data}\n\n".encode("utf-8", "replace"))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the base class
        """Requests are not printed: their addresses have the token."""
