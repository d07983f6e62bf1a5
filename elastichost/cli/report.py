"""Prints the facts that a verb returns: one `name value` line per fact, or one JSON object."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from elastichost.cli.output import data_console, fact_lines, print_json
from elastichost.human_readable import bytes_words, duration_words

__all__ = ["print_report"]

FIGURES = {"auc": "AUC", "logloss": "log loss", "wall_s": "time"}


def print_report(report: object, *, as_json: bool) -> None:
    """Prints a frozen dataclass or a msgspec struct. The lines leave out empty facts; the JSON object keeps them."""
    facts: Mapping[str, Any] = msgspec.to_builtins(report, enc_hook=str)
    if as_json:
        print_json(facts)
        return
    given = ((name, value) for name, value in facts.items() if value not in (None, "", [], (), {}))
    rows = [(_name(name, facts), _words(name, value)) for name, value in given]
    data_console().print(fact_lines(rows))


def _name(name: str, others: Collection[str] = ()) -> str:
    """The name of a fact as it is written in sentences."""
    short = name.removesuffix("_bytes")
    if short != name and short in others:  # `source` is the file, `source_bytes` its size
        short += "_size"
    return FIGURES.get(short, short.replace("_", " "))


def _words(name: str, value: object) -> str:
    match value:
        case int() if name.endswith("_bytes"):
            return bytes_words(value)
        case float() if name.endswith("_s"):
            return duration_words(value)
        case float():
            return "not defined" if math.isnan(value) else f"{value:.4f}"
        case Mapping():
            return ", ".join(
                f"{_name(str(key))} {_words(str(key), one)}" for key, one in value.items() if one is not None
            )
        case list() | tuple() if all(isinstance(one, list | tuple) and len(one) == 2 for one in value):
            return ", ".join(f"{key} {_words('', one)}" for key, one in value)
        case list() | tuple():
            return "\n".join(_words("", one) for one in value)
    return str(value)
