"""One connection to a real web server: bytes, versions, and failures that may pass or not."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError
from elastichost.datasets.sources.transports.http_range import HttpConnection
from elastichost.errors import DataError
from elastichost.wire.facts import InputKnobs
from tests.datasets.sources.served import CONTENT, file, folder, server

__all__ = ["file", "folder", "server"]


@pytest.fixture
def connection() -> Iterator[HttpConnection]:
    made = HttpConnection(stall_s=0.3)
    yield made
    made.close()


def test_a_range_has_its_bytes_and_they_are_told_as_they_arrive(
    connection: HttpConnection, file: AddressedFile
) -> None:
    data, arrived = bytearray(300_000), []
    first_byte_s = connection.read(file, 1000, memoryview(data), arrived.append)
    assert data == CONTENT[1000:301_000]
    assert sum(arrived) == len(data) and len(arrived) > 1
    assert first_byte_s >= 0
    connection.read(file, 0, memoryview(data)[:10])
    assert data[:10] == CONTENT[:10]


def test_a_file_that_changed_is_an_error_that_does_not_pass(
    connection: HttpConnection, file: AddressedFile, folder: Path
) -> None:
    os.utime(folder / "data.bin", (1, 1))
    with pytest.raises(DataError, match="changed while it was being read"):
        connection.read(file, 0, memoryview(bytearray(10)))


def test_a_file_that_is_not_there_is_an_error_that_does_not_pass(
    connection: HttpConnection, server: SourceServer
) -> None:
    with pytest.raises(DataError, match="404"):
        connection.stat(server.url("other.bin"))


def test_an_answer_that_was_not_read_does_not_spoil_the_next_request(
    connection: HttpConnection, server: SourceServer, file: AddressedFile
) -> None:
    for _ in range(3):
        with pytest.raises(DataError, match="404"):
            connection.stat(server.url("other.bin"))
        assert connection.stat(file.url) == file
        stale = AddressedFile(file.url, file.size_bytes, file.version + 1)
        with pytest.raises(DataError, match="changed"):
            connection.read(stale, 0, memoryview(bytearray(10)))
        connection.read(file, 0, memoryview(bytearray(10)))


def test_names_with_spaces_and_other_letters_are_sent_as_urls_have_them(
    connection: HttpConnection, server: SourceServer, folder: Path
) -> None:
    (folder / "donn\u00e9es 1.bin").write_bytes(b"abc")
    base = server.url("")
    assert connection.stat(f"{base}donn\u00e9es 1.bin").size_bytes == 3
    assert connection.stat(server.url("donn\u00e9es 1.bin")).size_bytes == 3, "quoted already"


def test_an_empty_file_has_no_bytes(connection: HttpConnection) -> None:
    """A server has no range of it to give: it answers 416, or the whole."""
    for status, headers in ((416, {"Content-Range": "bytes */0"}), (200, {"Content-Length": "0"})):
        with answering(status, headers) as url:
            assert connection.stat(url).size_bytes == 0
    with answering(416, {"Content-Range": "bytes */7"}) as url, pytest.raises(DataError, match="416"):
        connection.stat(url)


@contextlib.contextmanager
def answering(status: int, headers: dict[str, str]) -> Iterator[str]:
    """The address of a server that always gives this answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(_LocalServer(Handler)) as url:
        yield url


class _LocalServer(ThreadingHTTPServer):
    """Counts the connections that it accepts and closes."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.accepted = 0
        self.closed: SimpleQueue[None] = SimpleQueue()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        self.accepted += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        self.closed.put(None)


@contextlib.contextmanager
def serving(made: _LocalServer) -> Iterator[str]:
    """The address of a file of this server, which works meanwhile."""
    with made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_port}/x"
        finally:
            made.shutdown()
            thread.join()


class _Ranges(BaseHTTPRequestHandler):
    """Gives ranges of CONTENT that begin at a multiple of `block`."""

    protocol_version = "HTTP/1.1"
    block = 1

    def do_GET(self) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start = int(first) // self.block * self.block
        data = CONTENT[start : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{last}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def test_a_connection_that_the_server_closed_while_nobody_used_it_is_no_trouble() -> None:
    made = _LocalServer(type("Handler", (_Ranges,), {"timeout": 0.2}))
    control = InputControl(InputKnobs(connections=1))
    source = SourceConnections(control, stall_s=5.0, patience_s=20.0)
    with serving(made) as url:
        file = AddressedFile(url, len(CONTENT), 0)
        for accepted in (1, 2, 3):
            assert source.fetch(file, [(1500, 2500)]) == (CONTENT[1500:2500],)
            assert made.accepted == accepted
            made.closed.get(timeout=10.0)
    assert control.take_troubles() == []
    source.close()


def test_a_request_is_sent_again_at_once_only_over_a_connection_that_was_used(connection: HttpConnection) -> None:
    class Handler(_Ranges):
        """Answers only the first request of all."""

        def do_GET(self) -> None:
            if made.accepted == 1 and made.closed.empty():
                super().do_GET()
            self.close_connection = True  # which the answer does not say

    made = _LocalServer(Handler)
    with serving(made) as url:
        file, data = AddressedFile(url, len(CONTENT), 0), bytearray(10)
        connection.read(file, 0, memoryview(data))
        assert data == CONTENT[:10]
        made.closed.get(timeout=10.0)
        for accepted in (2, 3):
            with pytest.raises(SourceError) as caught:
                connection.read(file, 0, memoryview(data))
            assert caught.value.trouble == "reset"
            assert made.accepted == accepted


def test_bytes_that_were_not_asked_for_are_an_error(connection: HttpConnection) -> None:
    """A proxy may give whole blocks."""
    with serving(_LocalServer(type("Handler", (_Ranges,), {"block": 1000}))) as url:
        file, data = connection.stat(url), bytearray(1000)
        with pytest.raises(DataError, match="from 1500 on, and sends the range 'bytes 1000-2499/3000000'") as caught:
            connection.read(file, 1500, memoryview(data))
        assert "proxy" in caught.value.hint
        assert data == bytes(1000)
        connection.read(file, 2000, memoryview(data))
        assert data == CONTENT[2000:3000]
    headers = {"Content-Range": f"bytes /{len(CONTENT)}", "Content-Length": "10"}
    with answering(206, headers) as url, pytest.raises(DataError, match="sends the range"):
        connection.read(AddressedFile(url, len(CONTENT), 0), 0, memoryview(bytearray(10)))


@pytest.mark.parametrize(("status", "passes"), [(500, True), (503, True), (522, True), (530, True), (501, False)])
def test_errors_of_a_server_pass_and_of_a_proxy_too(connection: HttpConnection, status: int, passes: bool) -> None:
    """Proxies tell with numbers of their own that the server behind them does not answer."""
    with answering(status, {}) as url, pytest.raises(SourceError if passes else DataError):
        connection.stat(url)


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (416, {"Content-Range": "bytes */10"}, r"changed while .* 10 bytes now"),
        (416, {"Content-Range": "bytes */0"}, r"changed while .* 0 bytes now"),
        (200, {"Content-Length": "0"}, r"changed while .* 0 bytes now"),
        (416, {"Content-Range": "bytes */100"}, "416"),
        (416, {}, "416"),
    ],
)
def test_a_file_that_became_shorter_has_changed(
    connection: HttpConnection, status: int, headers: dict[str, str], error: str
) -> None:
    with answering(status, headers) as url, pytest.raises(DataError, match=error):
        connection.read(AddressedFile(url, 100, 0), 50, memoryview(bytearray(10)))


@pytest.mark.parametrize(
    "address", ["ftp://127.0.0.1/x", "http:///x", "http://127.0.0.1:abc/x", "http://a b/x", "http://[::1/x"]
)
def test_an_address_that_is_none_is_refused(connection: HttpConnection, address: str) -> None:
    with pytest.raises(DataError, match="not an address"):
        connection.stat(address)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("http://[::1]/x", "::1", 80), ("https://[fe80::1]/x", "fe80::1", 443), ("http://[::1]:8080/x", "::1", 8080)],
)
def test_an_address_of_version_6_may_have_no_port(
    connection: HttpConnection, address: str, host: str, port: int
) -> None:
    made = connection._connection(urlsplit(address))
    assert (made.host, made.port) == (host, port)


def test_a_server_that_stalls_resets_or_refuses_is_told_apart(
    connection: HttpConnection, file: AddressedFile, server: SourceServer
) -> None:
    def read_on() -> None:
        while True:
            connection.read(file, 0, memoryview(bytearray(10)))

    def trouble() -> str:
        """Of the first request that fails: the order may arrive after the next one."""
        with pytest.raises(SourceError) as caught:
            read_on()
        return caught.value.trouble

    connection.read(file, 0, memoryview(bytearray(10)))
    server.order(Order("refuse", 30.0))
    assert trouble() == "refused"
    server.order(Order("refuse", 0.0))
    server.order(Order("stall", 60.0))
    while (found := trouble()) == "refused":
        pass
    assert found == "stalled"


def test_nobody_at_the_address_is_a_trouble_that_may_pass(connection: HttpConnection, server: SourceServer) -> None:
    url = server.url("data.bin")
    server.__exit__()
    with pytest.raises(SourceError) as caught:
        connection.stat(url)
    assert caught.value.trouble == "reset"
