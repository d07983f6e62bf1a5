"""One connection to a real web server: bytes, versions, and failures that may pass or not."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError
from elastichost.datasets.sources.transports.http_range import HttpConnection
from elastichost.errors import DataError
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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/x"
        made.shutdown()
        thread.join()


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/x", "http:///x", "http://127.0.0.1:abc/x"])
def test_an_address_that_is_none_is_refused(connection: HttpConnection, address: str) -> None:
    with pytest.raises(DataError, match="not an address"):
        connection.stat(address)


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
