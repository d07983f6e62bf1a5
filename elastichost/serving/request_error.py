"""The refusal of a request: a status of HTTP, and a JSON body that a program can read."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.errors import ElastichostError
from elastichost.results.preprocess import ColumnError

__all__ = ["ErrorCode", "RequestError", "error_of_column"]

ErrorCode = Literal[
    "invalid_body",  # not JSON, not an Arrow stream
    "missing_column",
    "wrong_value",  # of another kind than in training, out of range, infinite
    "too_large",
    "too_many_rows",
    "too_slow",
    "unknown_content_type",
    "not_found",
    "method_not_allowed",
    "busy",
    "not_ready",
    "model_failed",
]
SHOWN_CHARACTERS = 100


class RequestError(ElastichostError):
    """A request that gets no scores. status: of HTTP. row: number of the row, from 0. value: the wrong value.
    expected: the kind of value that would be right. retry_after_s: when the client should try again. closes: whether
    the connection ends, because the rest of the body is not read."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        message: str,
        *,
        row: int | None = None,
        column: str | None = None,
        value: object = None,
        expected: str | None = None,
        retry_after_s: int | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.retry_after_s, self.closes = retry_after_s, closes
        self._facts = {"row": row, "column": column, "value": _shown(value), "expected": expected}

    def body(self) -> bytes:
        """{"error": {"code", "message", and what is known of row, column, value, expected}}."""
        facts = {name: value for name, value in self._facts.items() if value is not None}
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message, **facts}})


def _shown(value: object) -> object:
    """The value, or its beginning as text if it is long or JSON cannot hold it."""
    if value is None or isinstance(value, bool | int):
        return value
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:  # of lists in lists that JSON could just hold
        text = type(value).__name__
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def error_of_column(error: ColumnError) -> RequestError:
    """The refusal of a column that does not fit the export."""
    code: ErrorCode = "wrong_value" if error.row is not None else "missing_column"
    return RequestError(
        422,
        code,
        _shortened(str(error)),
        row=error.row,
        column=error.column,
        value=error.value,
        expected=error.expected,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 4 * SHOWN_CHARACTERS else f"{text[: 4 * SHOWN_CHARACTERS]}..."
