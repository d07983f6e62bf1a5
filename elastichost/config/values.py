"""The value types of the job file: what one setting accepts, and the message for a value that is refused."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from elastichost.config.base import refuse
from elastichost.specs import MAX_SERVERS, MAX_WORKERS

__all__ = [
    "BUILT_IN_FORMATS",
    "LARGEST_INITIAL",
    "AtLeastZero",
    "BuildArguments",
    "BuildFunction",
    "CoreCount",
    "Count",
    "CountFromOne",
    "FormatName",
    "InitRule",
    "Label",
    "MemoryAmount",
    "NotNegative",
    "Parallelism",
    "Positive",
    "RowCount",
    "RowOptimizerName",
    "Seed",
    "ServerCount",
    "Share",
    "Strings",
    "WorkerCount",
    "is_whole",
    "string_tuple",
]

BUILT_IN_FORMATS = ("parquet", "csv", "criteo_tsv", "synthetic")
# The largest absolute value of `init`: rows of both precisions hold it. float32 ends at 3.403e38, bfloat16 at 3.390e38.
LARGEST_INITIAL = 3.38e38


def is_whole(value: object) -> bool:
    """Whether the value is an integer. True and False are not: Python counts them as integers, TOML does not."""
    return isinstance(value, int) and not isinstance(value, bool)


def string_tuple(value: object) -> object:
    """Turns a TOML list into a tuple, and a single string into a tuple of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _label(value: object) -> str | tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not names or not all(isinstance(name, str) for name in names):
        raise refuse("a column name, or a list of them (multi-task)")
    return value if isinstance(value, str) else names


def _range(word: str, least: int, most: int | None = None) -> BeforeValidator:
    """A validator that accepts `word`, a whole number from `least` to `most`, or [min, max] within them. most: None: no
    limit.

    It is no PlainValidator: pydantic would warn each time that it writes a pair to JSON.
    """

    limit = math.inf if most is None else most
    also, end = ("", "") if most is None else (f" and <= {most}", f" <= {most}")

    def check(value: object) -> str | int | tuple[int, int]:
        if value == word and isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= limit:
            return value
        if isinstance(value, list | tuple) and len(value) == 2 and all(is_whole(bound) for bound in value):
            low, high = value
            if least <= low <= high <= limit:
                return low, high
        raise refuse(f'"{word}", a whole number >= {least}{also}, or [min, max] with {least} <= min <= max{end}')

    return BeforeValidator(check)


def _range_schema(word: str, least: int, most: int | None = None) -> WithJsonSchema:
    number: dict[str, Any] = {"type": "integer", "minimum": least}
    if most is not None:
        number["maximum"] = most
    pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
    return WithJsonSchema({"anyOf": [{"const": word}, number, pair]})


def _memory(value: object) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?\s*(%|[KMGT]i?B|B)", value.strip()):
        number = float(re.split(r"[%KMGTB\s]", value.strip(), maxsplit=1)[0])
        if number > 0 and ("%" not in value or number <= 100):
            return value.strip()
    raise refuse('a share like "80%" (at most 100%), a size like "4GiB" or "500MB", or a number of bytes')


def _rows(value: object) -> str | int:
    if value == "dynamic" and isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**40:
        return value
    raise refuse('"dynamic", or a whole number from 1 to 2**40')


def _format(value: object) -> str:
    if isinstance(value, str) and (value in BUILT_IN_FORMATS or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value)):
        return value
    words = ", ".join(f'"{word}"' for word in BUILT_IN_FORMATS)
    raise refuse(f'{words}, or "package.module:Reader"')


def _build(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"([A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*", value):
        return value
    raise refuse('"package.module:function" or "file.py:function"')


def _init(value: object) -> str:
    number = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    if isinstance(value, str):
        text = value.replace(" ", "")
        found = re.fullmatch(rf"constant\({number}\)|uniform\({number},{number}\)", text)
        numbers = [float(one) for one in found.groups() if one is not None] if found is not None else []
        if any(abs(one) > LARGEST_INITIAL for one in numbers):
            raise refuse(f"numbers from -{LARGEST_INITIAL:g} to {LARGEST_INITIAL:g}, which rows can hold")
        if numbers and numbers[0] <= numbers[-1]:
            return value
    raise refuse('"uniform(low, high)" with low <= high, or "constant(value)"')


def _plain_values(value: object) -> object:
    """Refuses values that TOML and JSON cannot both hold, such as dates, and numbers that are not finite: nan differs
    from itself, so a run with it could not be resumed with the same arguments."""
    pending = [("", value)]
    while pending:
        name, item = pending.pop()
        if isinstance(item, dict):
            pending.extend((f"{name}.{key}" if name else str(key), one) for key, one in item.items())
        elif isinstance(item, list | tuple):
            pending.extend((f"{name}[{number}]", one) for number, one in enumerate(item))
        elif not isinstance(item, str | int | float | bool) or (isinstance(item, float) and not math.isfinite(item)):
            raise refuse(f"strings, finite numbers, booleans, lists and tables; {name or 'the value'} is {item}")
    return value


Strings = Annotated[tuple[str, ...], BeforeValidator(string_tuple)]
Label = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_label),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
Parallelism = str | int | tuple[int, int]
WorkerCount = Annotated[Parallelism, _range("auto", 1, MAX_WORKERS), _range_schema("auto", 1, MAX_WORKERS)]
ServerCount = Annotated[Parallelism, _range("auto", 1, MAX_SERVERS), _range_schema("auto", 1, MAX_SERVERS)]
AtLeastZero = Annotated[Parallelism, _range("auto", 0), _range_schema("auto", 0)]
CoreCount = Annotated[Parallelism, _range("all", 1), _range_schema("all", 1)]
MemoryAmount = Annotated[
    str | int,
    PlainValidator(_memory),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}]}),
]
RowCount = Annotated[
    str | int,
    PlainValidator(_rows),
    WithJsonSchema({"anyOf": [{"const": "dynamic"}, {"type": "integer", "minimum": 1, "maximum": 2**40}]}),
]
FormatName = Annotated[str, PlainValidator(_format), WithJsonSchema({"type": "string"})]
BuildFunction = Annotated[str, PlainValidator(_build), WithJsonSchema({"type": "string"})]
BuildArguments = Annotated[dict[str, Any], BeforeValidator(_plain_values)]
InitRule = Annotated[str, PlainValidator(_init), WithJsonSchema({"type": "string"})]
RowOptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "adam"]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=0)]
CountFromOne = Annotated[int, Field(ge=1)]
