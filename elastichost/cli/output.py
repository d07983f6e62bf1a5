"""Where output goes: data to stdout, progress to stderr, and the one JSON object of `--json`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from elastichost.metrics import SCHEMA

__all__ = ["AsJson", "data_console", "fact_lines", "print_json", "progress_console", "wants_json"]

AsJson = Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object (schema elastichost/v1).")]


PLAIN_WIDTH = 160  # of tables that no terminal shows


def data_console() -> Console:
    """stdout. Lines are never cut or wrapped off a terminal, so that other programs can read them."""
    is_terminal = sys.stdout.isatty()
    return Console(soft_wrap=not is_terminal, highlight=False, width=None if is_terminal else PLAIN_WIDTH)


def progress_console() -> Console:
    """stderr."""
    return Console(stderr=True, highlight=False)


def fact_lines(facts: Iterable[tuple[str, str]]) -> Text:
    """`name  value` lines with the values under one another, also those of several lines."""
    rows = list(facts)
    width = max((len(name) for name, _ in rows), default=0)
    lines = Text()
    for name, value in rows:
        for number, part in enumerate(value.splitlines() or [""]):
            lines.append("\n" if lines else "").append((name if number == 0 else "").ljust(width + 2), style="dim")
            lines.append(part)
    return lines


def print_json(content: Mapping[str, Any]) -> None:
    """One line; `schema` comes first."""
    ordered = {"schema": SCHEMA, **{key: value for key, value in content.items() if key != "schema"}}
    sys.stdout.write(msgspec.json.encode(ordered, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the caller asked for JSON, known before the arguments are parsed (they may be what is wrong)."""
    return "--json" in arguments
