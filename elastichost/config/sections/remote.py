"""The section [data.remote] of the job file: it limits the rate of training data to that of a remote store."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema

from elastichost.config.base import Section, refuse
from elastichost.resources import memory_budget_bytes

__all__ = ["RemoteSettings"]

MOST_BYTES = 1 << 62
RATES = '0 (no limit), a number of bytes >= 1, or a size like "20MB" or "4MiB"'


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
    """`data.remote`: training data arrives as slowly as over connections to a remote store. Every worker has
    `data.input.connections` of them, so with twice as many it reads twice as fast. Test data, and what is read before
    the start, is not slowed."""

    bytes_per_s: Rate = Field(
        default=0,
        description='Rate of each connection, in bytes per second: a number, or a size like "20MB". 0: no limit. For '
        "files, the bytes in the file count (Parquet: compressed bytes of the columns that are read; text: whole "
        "lines). For synthetic data and readers of your own, the bytes of a batch's arrays count.",
    )
    latency_s: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="Time in seconds from the request for a unit to its first byte."
    )

    @property
    def rate_bytes_per_s(self) -> float:
        """`bytes_per_s` as a number."""
        given = self.bytes_per_s
        return float(memory_budget_bytes(given, MOST_BYTES) if isinstance(given, str) else given)
