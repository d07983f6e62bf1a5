"""One connection to a real web server: bytes, versions, and failures that may pass or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
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


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/x", "http:///x"])
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
