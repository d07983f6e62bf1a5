"""Output of the verbs: data on stdout, progress on stderr, and the one JSON object of `--json`."""

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

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of stdout (schema elastichost/v1).")
]


# Both consoles print text as it is: names of figures, such as auc[clicked], are no markup, nor are messages of errors.
PLAIN_WIDTH = 160  # characters: width of tables when stdout is not a terminal


def data_console() -> Console:
    """A console on stdout. When stdout is not a terminal, lines are not cut or wrapped: other programs read them."""
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else PLAIN_WIDTH
    return Console(soft_wrap=not is_terminal, highlight=False, markup=False, width=width)


def progress_console() -> Console:
    """A console on stderr."""
    return Console(stderr=True, highlight=False, markup=False)


def fact_lines(facts: Iterable[tuple[str, str]]) -> Text:
    """Lines of `name  value` with aligned values; a value of several lines is aligned too."""
    rows = list(facts)
    width = max((len(name) for name, _ in rows), default=0)
    lines = Text()
    for name, value in rows:
        for number, part in enumerate(value.splitlines() or [""]):
            lines.append("\n" if lines else "").append((name if number == 0 else "").ljust(width + 2), style="dim")
            lines.append(part)
    return lines


def print_json(content: Mapping[str, Any]) -> None:
    """Prints `content` as one line of JSON on stdout; the key `schema` comes first."""
    ordered = {"schema": SCHEMA, **{key: value for key, value in content.items() if key != "schema"}}
    sys.stdout.write(msgspec.json.encode(ordered, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments include `--json`. They are not parsed for this, because parsing them may fail."""
    return "--json" in arguments
