"""The section of the job file that makes training data come as slowly as from a remote store."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from elastichost.config.base import Section, refuse
from elastichost.resources import memory_budget_bytes

__all__ = ["RemoteSettings"]

MOST_BYTES = 1 << 62
RATES = '0 (as fast as can be read), a number of bytes >= 1, or a size like "20MB" or "4MiB"'


def _rate(value: object) -> str | int | float:
    if isinstance(value, int | float) and not isinstance(value, bool) and (value == 0 or 1 <= value <= MOST_BYTES):
        return value
    is_size = isinstance(value, str) and re.fullmatch(r"\d{1,18}(\.\d{1,18})?\s*([KMGT]i?B|B)", value)
    if isinstance(value, str) and is_size and memory_budget_bytes(value, MOST_BYTES) >= 1:
        return value
    raise refuse(RATES)


Rate = Annotated[
    str | int | float,
    PlainValidator(_rate),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}]}),
]


class RemoteSettings(Section):
    """`data.remote`: training data comes no faster than over a connection to a remote store. `bytes_per_s`, for each
    reader: every worker has one, with one thread and one connection, so two workers read twice as fast; 0: as fast as
    it can be read. Bytes are those in the file: of Parquet the compressed ones of the columns that are read, of text
    the lines; of synthetic data and of own readers those of a batch's arrays. `latency_s`: from asking for a unit to
    its first byte. Test data, and what is read before the start, come as fast as they can."""

    bytes_per_s: Rate = 0
    latency_s: Annotated[float, Field(ge=0)] = 0.0

    @property
    def rate_bytes_per_s(self) -> float:
        """`bytes_per_s` as a number."""
        given = self.bytes_per_s
        return float(memory_budget_bytes(given, MOST_BYTES) if isinstance(given, str) else given)
