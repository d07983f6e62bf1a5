"""Sizes and first lines of text files at addresses, over many connections at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastichost.datasets.files import FileStamp
from elastichost.datasets.files.many_requests import requested
from elastichost.datasets.sources.single_requests import RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError

__all__ = ["MOST_BYTES", "TextBegin", "remote_begins"]

PIECE_BYTES = 1 << 16  # of a request
MOST_BYTES = 16 << 20  # of a first line


@dataclass(frozen=True, slots=True)
class TextBegin:
    """stamp: of the file as it is now. first_line: with its line break, cut after MOST_BYTES; b"": the file is
    empty."""

    stamp: FileStamp
    first_line: bytes


def remote_begins(urls: Sequence[str], waiting: RequestPolicy) -> dict[str, TextBegin | DataError]:
    """The begin of each file, or why it cannot be read. Raises SourceGoneError when the source is given up."""

    def request(connection: SourceConnection, place: int) -> TextBegin:
        file = connection.stat(urls[place])
        line = _first_line(connection, file)
        connection.check(file)
        return TextBegin(FileStamp(file.url, file.size_bytes, file.version), line)

    found = requested(urls, request, waiting, OpenStores(waiting.stall_s))
    return dict(zip(urls, found, strict=True))


def _first_line(connection: SourceConnection, file: AddressedFile) -> bytes:
    line = bytearray()
    while len(line) < min(file.size_bytes, MOST_BYTES):
        piece = bytearray(min(PIECE_BYTES, file.size_bytes - len(line)))
        connection.read(file, len(line), memoryview(piece))
        head, line_break, _ = piece.partition(b"\n")
        line += head + line_break
        if line_break:
            break
    return bytes(line)
