"""The section [data.input] of the job file: how a worker reads training data ahead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from elastichost.config.base import Section, refuse
from elastichost.config.values import Positive, Share
from elastichost.plan import MOST_READERS
from elastichost.resources import memory_budget_bytes

__all__ = ["AUTO", "InputSettings", "size_of"]

AUTO = "auto"
MOST_BYTES = 1 << 40


def _whole(least: int, most: int) -> Callable[[object], int | str]:
    def check(value: object) -> int | str:
        if value == AUTO:
            return AUTO
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise refuse(f'"auto", or a whole number from {least} to {most}')

    return check


def _size(least: int, most: int) -> Callable[[object], int | str]:
    def check(value: object) -> int | str:
        if value == AUTO:
            return AUTO
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        is_size = isinstance(value, str) and re.fullmatch(r"\d{1,18}(\.\d{1,18})?\s*([KMGT]i?B|B)", value)
        if isinstance(value, str) and is_size and least <= size_of(value) <= most:
            return value
        raise refuse(f'"auto", a number of bytes from {least} to {most}, or a size like "64MiB"')

    return check


def _schema(least: int, most: int, *, has_units: bool) -> WithJsonSchema:
    number: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return WithJsonSchema({"anyOf": [{"type": "string"} if has_units else {"const": AUTO}, number]})


def size_of(setting: int | str) -> int:
    """A number of bytes, or a size like "64MiB", as a number."""
    return memory_budget_bytes(setting, 1 << 62)


Connections = Annotated[int | str, PlainValidator(_whole(1, 32)), _schema(1, 32, has_units=False)]
DecodeThreads = Annotated[int | str, PlainValidator(_whole(1, 16)), _schema(1, 16, has_units=False)]
PrefetchBatches = Annotated[int | str, PlainValidator(_whole(0, 64)), _schema(0, 64, has_units=False)]
PrefetchBytes = Annotated[int | str, PlainValidator(_size(0, MOST_BYTES)), _schema(0, MOST_BYTES, has_units=True)]
Readers = Annotated[int | str, PlainValidator(_whole(0, MOST_READERS)), _schema(0, MOST_READERS, has_units=False)]
RangeBytes = Annotated[int | str, PlainValidator(_size(4096, 1 << 30)), _schema(4096, 1 << 30, has_units=True)]


class InputSettings(Section):
    """`data.input`: how each worker reads training data ahead. With "auto" the tuner sets a value and changes it while
    the job trains; with another `tuner.mode` than "act" it stays at its start: 1 connection, 1 decode thread, nothing
    ahead."""

    readers: Readers = Field(
        default=AUTO,
        description="Processes that read for a worker, 0 to 4. 0: the worker reads itself, in threads. "
        '"auto": 0 without a GPU; with one as many as the worker has spare cores, 1 to 4.',
    )
    connections: Connections = Field(
        default=AUTO, description='Ranges that a worker requests from the source at the same time, 1 to 32, or "auto".'
    )
    decode_threads: DecodeThreads = Field(
        default=AUTO, description='Units that a worker decodes ahead at the same time, 1 to 16, or "auto".'
    )
    prefetch_batches: PrefetchBatches = Field(
        default=AUTO,
        description='Batches that a worker reads ahead of those it prepares, 0 to 64, or "auto". They even out a '
        "source whose speed varies.",
    )
    prefetch_bytes: PrefetchBytes = Field(
        default=AUTO,
        description="Most bytes of units and batches that a worker holds ahead of those in use: a number, a size like "
        '"64MiB", or "auto". 0: it holds none.',
    )
    range_bytes: RangeBytes = Field(
        default=AUTO, description='Bytes of one request to a remote source: a number, a size like "1MiB", or "auto".'
    )
    cache: Literal["auto", "none", "disk", "memory"] = Field(
        default="auto",
        description='What is kept of the data for the next epoch. "disk": the bytes of a remote source as they were '
        'fetched, for all jobs that read the same files. "memory": decoded data in shared memory, for all workers of '
        'the run. "none": nothing. "auto": nothing at first; the tuner chooses one where workers wait for input.',
    )
    cache_bytes: PrefetchBytes = Field(
        default=AUTO,
        description='Most bytes that are kept: a number, a size like "20GiB", or "auto": on the disk a quarter of what '
        "is free, in memory half of what is left of `resources.memory`. In memory it is never more than that half.",
    )
    cache_directory: str = Field(
        default="",
        description="Directory of what is kept on the disk. Empty: `ranges` in $ELASTICHOST_CACHE or in the user's "
        "cache directory.",
    )
    memory_share: Share = Field(
        default=0.1,
        description="Largest share of `resources.memory` that all workers together may hold ahead. The tuner "
        "also keeps within half of the memory that is left.",
    )
    stall_s: Positive = Field(
        default=5.0,
        description="Time in seconds without a byte after which a request to a remote source counts as stalled. It is "
        "reported, and sent again.",
    )
    patience_s: Positive = Field(
        default=600.0,
        description="Time in seconds without a byte after which the run stops with a checkpoint, so that it can be "
        "resumed. Until then the workers wait for the source.",
    )

    def reader_count(self, *, has_gpu: bool, spare_cores: int) -> int:
        """The number of reader processes of a worker. spare_cores: those of the worker that it does not train on. It is
        0 for all values of `spare_cores` or for none: a worker knows from its GPU whether it reads itself."""
        if self.readers != AUTO:
            return int(self.readers)
        return min(MOST_READERS, max(1, spare_cores)) if has_gpu else 0
