"""Files of a real server that speaks S3: bytes, versions, and failures that may pass or not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_proxy import SourceProxy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.errors import DataError
from tests.datasets.sources.s3_server import BUCKET, S3Server, s3_environment, store
from tests.datasets.sources.served import CONTENT

__all__ = ["s3_environment", "store"]


GONE = Order("gone", 60.0)


@pytest.fixture
def proxy(store: S3Server) -> Iterator[SourceProxy]:
    store.put("data.bin", CONTENT)
    with SourceProxy("127.0.0.1", store.port) as made:
        yield made


@pytest.fixture
def file(store: S3Server, proxy: SourceProxy) -> AddressedFile:
    return SourceConnection(5.0).stat(store.url("data.bin", proxy.endpoint))


def read(connection: SourceConnection, file: AddressedFile, start: int, size: int) -> bytes:
    data = bytearray(size)
    connection.read(file, start, memoryview(data))
    connection.check(file)
    return bytes(data)


def test_a_range_has_its_bytes(file: AddressedFile) -> None:
    connection, arrived = SourceConnection(5.0), []
    data = bytearray(300_000)
    assert connection.read(file, 1000, memoryview(data), arrived.append) >= 0
    assert data == CONTENT[1000:301_000] and sum(arrived) == len(data)
    assert read(connection, file, len(CONTENT) - 10, 10) == CONTENT[-10:]
    assert file.size_bytes == len(CONTENT) and file.version


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[:100], b""])
def test_a_file_that_changed_is_refused_whatever_was_read_of_it(
    store: S3Server, file: AddressedFile, content: bytes
) -> None:
    connection = SourceConnection(5.0)
    read(connection, file, 0, 10)
    store.put("data.bin", content)
    for start in (0, 2_000_000):
        with pytest.raises(DataError, match="changed while it was being read"):
            read(connection, file, start, 10)


def test_a_file_or_bucket_that_is_not_there_is_told_apart(store: S3Server) -> None:
    connection = SourceConnection(5.0)
    with pytest.raises(DataError, match="no such file in the store"):
        connection.stat(store.url("none.bin"))
    with pytest.raises(DataError, match="no bucket 'nobody'"):
        connection.stat(store.url("none.bin").replace(BUCKET, "nobody"))


def test_a_server_with_a_trouble_is_told_apart_and_works_again(file: AddressedFile, proxy: SourceProxy) -> None:
    connection = SourceConnection(1.0)

    def troubles(order: Order, wanted: str) -> set[str]:
        """Of the requests until one fails in the wanted way: the order may arrive after some."""
        found: set[str] = set()
        proxy.order(order)
        while wanted not in found:
            try:
                read(connection, file, 0, 10)
            except SourceError as error:
                found.add(error.trouble)
        proxy.order(Order(order.fault, 0.0))
        return found

    def works_again() -> bool:
        with contextlib.suppress(SourceError):
            return read(connection, file, 0, 10) == CONTENT[:10]
        return False

    for order, wanted in ((Order("refuse", 60.0), "refused"), (Order("stall", 60.0), "stalled"), (GONE, "reset")):
        assert troubles(order, wanted) <= {wanted, "stalled"}  # a host under load may stall by itself
        while not works_again():
            pass
