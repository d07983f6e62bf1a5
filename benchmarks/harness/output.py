"""What a benchmark prints: tables for people; for programs the last line of stdout, one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from benchmarks.harness.aims import Verdict
from benchmarks.harness.machine import read_machine

__all__ = ["print_table", "write_json"]

SCHEMA = "elastichost-benchmark/v1"


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A plain table: the first column to the left, the others to the right."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def write_json(
    benchmark: str, figures: msgspec.Struct | Mapping[str, object], verdicts: Sequence[Verdict] | None = None
) -> None:
    """What was measured and where; verdicts: on the aims, where a benchmark has some."""
    found = {"schema": SCHEMA, "benchmark": benchmark, "machine": read_machine(), "figures": figures}
    if verdicts is not None:
        found["verdicts"] = [verdict.to_json() for verdict in verdicts]
    sys.stdout.flush()
    print(msgspec.json.encode(found).decode(), flush=True)
