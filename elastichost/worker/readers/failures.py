"""The error of a reader as bytes, and as its worker raises it: as if the worker had read the samples itself."""

from __future__ import annotations

import msgspec

from elastichost.errors import ElastichostError, JobFailedError, PreflightError, named_error
from elastichost.wire.entry import failure_report

__all__ = ["error_bytes", "error_from"]

MOST_TEXT = 1000  # of a message or hint: the report must fit into a place of a ring, which has a page at least


class _Report(msgspec.Struct, frozen=True):
    error_type: str
    message: str
    hint: str


def error_bytes(error: BaseException) -> bytes:
    """The report of an error. Its traceback stays in the reader's log."""
    report = failure_report(error)
    short = (text[:MOST_TEXT].encode(errors="replace").decode() for text in (report.message, report.hint))
    return msgspec.json.encode(_Report(report.error_type, *short))


def error_from(report: bytes, reader: str) -> ElastichostError:
    """The error of a report. An exception that is none of `errors` becomes JobFailedError, which names the reader."""
    told = msgspec.json.decode(report, type=_Report)
    error = named_error(told.error_type, told.message, hint=told.hint)
    if isinstance(error, PreflightError):
        return error
    return JobFailedError(f"{reader}: {told.error_type}: {told.message}", hint=told.hint)
