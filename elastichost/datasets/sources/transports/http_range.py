"""One connection to a web server or an object store that answers range requests (RFC 9110, section 14)."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import SplitResult, quote, urlsplit

from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError, changed, version_of_tag
from elastichost.errors import DataError

__all__ = ["HttpConnection"]

SCHEMES = ("http", "https")
TRANSIENT = frozenset({408, 425, 429})
LASTING = frozenset({501, 505})  # of the errors of a server; proxies have numbers of their own up to 530 for the others
PIECE_BYTES = 1 << 16
PLAIN = "%/?:@!$&'()*+,;=~"  # characters of a path or a query that are sent as they are
_RANGE = re.compile(r"bytes[ =]*(\d+)-(\d+)/")  # of an answer that has bytes
_NO_RANGE = re.compile(r"bytes[ =]*\*/(\d+)")  # of an answer that has none: only the size of the file


class HttpConnection:
    """One connection, kept open between requests; used by one thread. stall_s: time without a byte after which a
    request fails."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._origin: tuple[str, str] | None = None
        self._open: http.client.HTTPConnection | None = None

    def stat(self, url: str) -> AddressedFile:
        """Size and version of the file. Raises DataError for a file that is not there or cannot be read in ranges,
        SourceError for what may pass."""
        response = self._request(url, (0, 1))
        try:
            if _is_empty(response):
                response.read()
                return AddressedFile(url, 0, version_of(response))
            _check_status(url, response, HTTPStatus.PARTIAL_CONTENT)
            size = _size_of(url, response)
            response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from error
        except (SourceError, DataError):
            self.close()  # with an answer that was not read, the connection can take no further request
            raise
        return AddressedFile(url, size, version_of(response))

    def read(
        self, file: AddressedFile, start: int, into: memoryview, arrived: Callable[[int], None] = lambda size: None
    ) -> float:
        """Reads len(into) bytes from `start` on. arrived: is called with the bytes of each piece, also where a later
        one fails. Returns the seconds until the first byte. Raises as `stat`, and DataError for a file that has changed
        and for a server that sends other bytes."""
        began_s = time.perf_counter()
        response = self._request(file.url, (start, start + len(into)))
        try:
            _check_is_long_enough(file, response)
            _check_status(file.url, response, HTTPStatus.PARTIAL_CONTENT)
            _check_version(file, response)
            _check_begin(file.url, response, start)
            first_byte_s = time.perf_counter() - began_s
            filled = 0
            while filled < len(into):
                size = response.readinto(into[filled : filled + PIECE_BYTES])
                if not size:
                    raise http.client.IncompleteRead(b"", len(into) - filled)
                filled += size
                arrived(size)
            response.read()  # the end of an answer in chunks
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from error
        except (SourceError, DataError):
            self.close()
            raise
        return first_byte_s

    def check(self, file: AddressedFile) -> None:
        """Does nothing: each answer to `read` says of which version it is."""

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _request(self, url: str, bounds: tuple[int, int]) -> http.client.HTTPResponse:
        try:
            parts = urlsplit(url)
            target = quote(parts.path or "/", safe=PLAIN) + (
                f"?{quote(parts.query, safe=PLAIN)}" if parts.query else ""
            )
            return self._answer(parts, target, {"Range": f"bytes={bounds[0]}-{bounds[1] - 1}"})
        except OSError as error:  # first: an error of a certificate is a ValueError, too
            raise self._failure(error) from error
        except (ValueError, http.client.InvalidURL) as error:  # the host or the port
            self.close()
            raise DataError(f"{url}: not an address of a web server ({error})", hint="give http://HOST/PATH") from error
        except http.client.HTTPException as error:
            raise self._failure(error) from error

    def _answer(self, parts: SplitResult, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """The answer to a request. A server may close an idle connection, and the client notices only when it sends the
        next request: then the client sends it once more, over a new connection (RFC 9112, section 9.3.1)."""
        connection = self._connection(parts)
        was_used = connection.sock is not None
        try:
            connection.request("GET", target, headers=headers)
            return connection.getresponse()
        except OSError as error:
            if not was_used or isinstance(error, TimeoutError):
                raise
        self.close()
        connection = self._connection(parts)
        connection.request("GET", target, headers=headers)
        return connection.getresponse()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        origin = (parts.scheme.lower(), parts.netloc)
        if origin != self._origin:
            self.close()
        if self._open is None:
            if origin[0] not in SCHEMES or not parts.hostname:
                raise DataError(f"{parts.geturl()}: not an address of http or https", hint="give http://HOST/PATH")
            kind = http.client.HTTPSConnection if origin[0] == "https" else http.client.HTTPConnection
            port = kind.default_port if parts.port is None else parts.port  # without one, "::1" is taken to have one
            self._open, self._origin = kind(parts.hostname, port, timeout=self._stall_s), origin
        return self._open

    def _failure(self, error: Exception) -> SourceError:
        self.close()
        if isinstance(error, TimeoutError):
            return SourceError("stalled", f"no byte for {self._stall_s:g} s")
        return SourceError("reset", str(error) or type(error).__name__)


def _is_empty(response: http.client.HTTPResponse) -> bool:
    """Whether the file has no bytes: a server then has no range to give."""
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return response.getheader("Content-Range", "").replace(" ", "") == "bytes*/0"
    return response.status == HTTPStatus.OK and response.getheader("Content-Length") == "0"


def version_of(response: http.client.HTTPResponse) -> int:
    """A number of the entity tag, or else of the time of the last change, in nanoseconds; 0: neither is given."""
    if tag := response.getheader("ETag"):
        return version_of_tag(tag)
    try:
        changed = parsedate_to_datetime(response.getheader("Last-Modified", ""))
    except ValueError:
        return 0
    return round(changed.timestamp() * 1e9)


def _check_status(url: str, response: http.client.HTTPResponse, wanted: int) -> None:
    if response.status == wanted:
        return
    status = response.status
    if status in TRANSIENT or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in LASTING):
        raise SourceError("refused", f"{response.status} {response.reason}")
    if response.status == HTTPStatus.OK:
        raise DataError(
            f"{url}: the server does not answer range requests",
            hint="download the file, or use a server that sends parts of files (206 Partial Content)",
        )
    raise DataError(
        f"{url}: {response.status} {response.reason}", hint="check the address, and that the file may be read"
    )


def _size_of(url: str, response: http.client.HTTPResponse) -> int:
    whole = response.getheader("Content-Range", "").rpartition("/")[2]
    if not whole.isdecimal():
        raise DataError(f"{url}: the server does not tell the size of the file", hint="download the file")
    return int(whole)


def _check_version(file: AddressedFile, response: http.client.HTTPResponse) -> None:
    now = (_size_of(file.url, response), version_of(response))
    if now != (file.size_bytes, file.version):
        raise changed(file, now[0])


def _check_is_long_enough(file: AddressedFile, response: http.client.HTTPResponse) -> None:
    """Raises DataError when the answer says that the file has become too short for the range."""
    if _is_empty(response):
        raise changed(file, 0)
    if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        told = _NO_RANGE.match(response.getheader("Content-Range", ""))
        if told is not None and int(told[1]) != file.size_bytes:
            raise changed(file, int(told[1]))


def _check_begin(url: str, response: http.client.HTTPResponse, start: int) -> None:
    """A server may send another range than the one that was asked for (RFC 9110, section 15.3.7). An answer that ends
    too early is noticed by its bytes."""
    told = response.getheader("Content-Range", "")
    found = _RANGE.match(told)
    if found is None or int(found[1]) != start:
        raise DataError(
            f"{url}: the server was asked for the bytes from {start} on, and sends the range '{told}'",
            hint="download the file, or use a server (and a proxy before it) that sends the range that it is asked for",
        )
