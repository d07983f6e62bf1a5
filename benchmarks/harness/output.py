"""Output of benchmarks: tables for people, and one JSON object in the last line of stdout for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.harness.aims import Verdict
from benchmarks.harness.commit import read_commit
from benchmarks.harness.machine import read_machine

__all__ = ["markdown_table", "print_table", "write_json"]

SCHEMA = "elastichost-benchmark/v1"


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a plain table; the first column is left-aligned, the others are right-aligned."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(row)} |" for row in rows)]


def write_json(
    benchmark: str, figures: msgspec.Struct | Mapping[str, object], verdicts: Sequence[Verdict] | None = None
) -> None:
    """Prints the figures, the machine and the commit as JSON. verdicts: on the aims, None if the benchmark has no
    aims."""
    found = {
        "schema": SCHEMA,
        "benchmark": benchmark,
        "machine": read_machine(),
        "commit": read_commit(Path(__file__).parent),
        "figures": figures,
    }
    if verdicts is not None:
        found["verdicts"] = [verdict.to_json() for verdict in verdicts]
    sys.stdout.flush()
    print(msgspec.json.encode(found).decode(), flush=True)
