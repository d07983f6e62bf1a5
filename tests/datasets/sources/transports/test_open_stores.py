"""Which library reads an address, and what is said where there is none; and a store of fsspec."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest

from elastichost.datasets.files import expand_patterns
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.addresses import parsed
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """A file system of fsspec: in the memory of this process."""
    files = fsspec.filesystem("memory")
    files.pipe("/box/a.bin", b"0123456789")
    yield files
    files.rm("/box", recursive=True)


def test_one_client_serves_all_files_of_a_bucket() -> None:
    stores = OpenStores(5.0, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert stores.of(parsed("s3://b/x")) is stores.of(parsed("s3://b/y"))
    assert stores.of(parsed("s3://b/x")) is not stores.of(parsed("s3://b/x?region=r"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nothing://b/x", "nothing here reads nothing://"),
        ("oci://b/x", "the library that reads oci:// is not installed"),
        ("gs://b/x?regoin=x", "not an address of a store"),
    ],
)
def test_an_address_that_no_library_reads_is_an_error_with_what_to_do(url: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        SourceConnection(5.0).stat(url)
    assert caught.value.hint


def test_a_store_of_fsspec_gives_ranges_and_refuses_a_file_that_changed(memory: fsspec.AbstractFileSystem) -> None:
    connection = SourceConnection(5.0)
    file = connection.stat("memory://box/a.bin")
    assert (file.size_bytes, file.version > 0) == (10, True)
    data = bytearray(3)
    connection.read(file, 2, memoryview(data))
    connection.check(file)
    assert data == b"234"
    memory.pipe("/box/a.bin", b"01234567890")
    with pytest.raises(DataError, match="changed while"):
        connection.check(AddressedFile(file.url, 10, file.version))
    with pytest.raises(DataError, match="no such file"):
        connection.stat("memory://box/none")
    assert expand_patterns(["memory://box/*.bin"]) == (("memory://box/a.bin",), ())
