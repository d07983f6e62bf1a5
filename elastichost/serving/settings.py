"""What can be chosen for a server."""

from __future__ import annotations

import msgspec

__all__ = ["BUFFERED_BYTES", "MIB", "ServeSettings"]

MIB = 1 << 20
BUFFERED_BYTES = 256 * MIB


class ServeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a server; worker processes receive them as JSON.

    directory          the export, or a symbolic link to it
    port               0: any free port
    max_body_bytes     of one request
    max_request_rows   of one request
    max_batch_rows     that the model scores at once; a single request may have more
    max_delay_s        a request waits this long for others; requests that come while the model works are joined anyway
    queue_requests     that wait for the model or are scored; more are refused with 503
    buffered_bytes     of all bodies that are in memory; more are refused with 503, also of one request
    header_timeout_s   in which a client must send the head of a request, and take the answer
    body_timeout_s     in which a client must send the body
    drain_s            in which requests are finished after SIGTERM
    follow_s           time between two looks at the directory
    refuse_nulls       whether a null is refused instead of what it meant in training
    answers_file       of several worker processes: names the directory of the export that answers; "": there is one
    """

    directory: str
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    max_body_bytes: int = 8 * MIB
    max_request_rows: int = 10_000
    max_batch_rows: int = 8192
    max_delay_s: float = 0.0
    queue_requests: int = 256
    buffered_bytes: int = BUFFERED_BYTES
    max_connections: int = 2048
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    drain_s: float = 30.0
    follow_s: float = 1.0
    refuse_nulls: bool = False
    answers_file: str = ""
