"""The parts of an address of a store."""

from __future__ import annotations

import pytest

from elastichost.datasets.sources.transports.addresses import StoreAddress, is_address, is_store, parsed
from elastichost.errors import DataError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://b/a/c.parquet", StoreAddress("s3", "b", "a/c.parquet")),
        ("S3://b/a%20b#1.csv", StoreAddress("s3", "b", "a%20b#1.csv")),
        ("s3://b/what?.csv", StoreAddress("s3", "b", "what?.csv")),
        ("s3://b/a?region=eu-1&scheme=http", StoreAddress("s3", "b", "a", (("region", "eu-1"), ("scheme", "http")))),
        ("abfs://box@account.dfs.core.windows.net/a", StoreAddress("abfs", "box@account.dfs.core.windows.net", "a")),
        ("hdfs:///data/a", StoreAddress("hdfs", "", "data/a")),
    ],
)  # fmt: skip
def test_an_address_has_parts_and_its_key_stands_for_itself(url: str, address: StoreAddress) -> None:
    assert parsed(url) == address
    assert parsed(address.url(address.key)) == address


def test_files_of_one_store_have_one_root() -> None:
    one, other = parsed("s3://b/x?region=r"), parsed("s3://b/y/z?region=r")
    assert one.root == other.root != parsed("s3://b/x").root


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@b/x", "s3://KEY@b/x", "ftp://me:SECRET@host/x"])
def test_an_address_with_a_password_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(DataError, match="may not hold keys or passwords") as caught:
        parsed(url)
    assert "SECRET" not in str(caught.value) and "KEY" not in caught.value.message


def test_an_address_without_a_bucket_is_refused() -> None:
    with pytest.raises(DataError, match="names no bucket"):
        parsed("s3:///a")


def test_addresses_are_told_from_paths() -> None:
    assert [is_address(path) for path in ("s3://b/a", "http://h/a", "/a/b", "c:/a", "file:///a", "a*.csv")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert [is_store(path) for path in ("s3://b/a", "HTTPS://h/a", "gs://b/a")] == [True, False, True]
