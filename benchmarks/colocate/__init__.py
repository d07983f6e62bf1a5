"""Many small jobs on this host, packed: how much sooner all are done than one after another, or by other rules."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m elastichost bench colocate`."""
    from benchmarks.colocate.suite import main as suite

    return suite(arguments)
