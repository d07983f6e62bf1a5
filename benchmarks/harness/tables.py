"""Plain tables on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["print_table"]


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column to the left, the others to the right."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())
