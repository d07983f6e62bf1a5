"""The parts of an address of a store: `s3://BUCKET/KEY?region=eu-west-1`. Pure.

A key stands for itself: nothing in it is percent-decoded. A question mark begins the options if `NAME=` follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from elastichost.errors import DataError

__all__ = ["GLOB", "StoreAddress", "is_address", "is_store", "parsed"]

GLOB = frozenset("*[")
_ADDRESS = re.compile(r"(?!file://)[A-Za-z][A-Za-z0-9+.-]+://", re.IGNORECASE)
_WEB = re.compile(r"https?://", re.IGNORECASE)
_OPTIONS = re.compile(r"\?(?=[A-Za-z_][A-Za-z0-9_-]*=)")


def is_address(path: str) -> bool:
    """Whether the path is an address, whose file is read without a copy here."""
    return _ADDRESS.match(path) is not None


def is_store(path: str) -> bool:
    """Whether the path is an address of a store, not of a web server."""
    return is_address(path) and _WEB.match(path) is None


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """authority: the bucket, the container (`CONTAINER@ACCOUNT`), or host and port. key: the path below it, without a
    slash at its begin. options: names and values after the question mark."""

    scheme: str
    authority: str
    key: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> str:
        """The address of the store: equal for all its files."""
        return f"{self.scheme}://{self.authority}{self._query}"

    @property
    def _query(self) -> str:
        return f"?{urlencode(self.options, safe=':/')}" if self.options else ""

    def url(self, key: str) -> str:
        """The address of another file of this store."""
        return f"{self.scheme}://{self.authority}/{key}{self._query}"


def parsed(url: str) -> StoreAddress:
    """The parts of an address. Raises DataError when it names no store, or holds a password."""
    scheme, _, rest = url.partition("://")
    found = _OPTIONS.search(rest)
    place, query = (rest[: found.start()], rest[found.end() :]) if found else (rest, "")
    authority, _, key = place.partition("/")
    user, at, host = authority.rpartition("@")
    if at and (":" in user or scheme.lower() in ("s3", "s3a")):
        raise DataError(
            f"{scheme}://...@{host}/{key}: an address may not hold keys or passwords, because events and logs show it",
            hint="give them as the store's own tools take them, for example AWS_ACCESS_KEY_ID or AWS_PROFILE",
        )
    if not authority and scheme.lower() != "hdfs":
        raise DataError(f"{url}: names no bucket or host", hint=f"write {scheme}://BUCKET/KEY")
    return StoreAddress(scheme.lower(), authority, key, tuple(parse_qsl(query, keep_blank_values=True)))
