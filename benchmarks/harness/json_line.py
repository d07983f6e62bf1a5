"""What a benchmark says to programs: the last line of stdout is one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.harness.aims import Verdict
from benchmarks.harness.machine import read_machine

__all__ = ["write_json"]

SCHEMA = "elastichost-benchmark/v1"


def write_json(
    benchmark: str, figures: msgspec.Struct | Mapping[str, object], verdicts: Sequence[Verdict] | None = None
) -> None:
    """What was measured and where; verdicts: on the aims, where a benchmark has some."""
    found = {"schema": SCHEMA, "benchmark": benchmark, "machine": read_machine(), "figures": figures}
    if verdicts is not None:
        found["verdicts"] = [verdict.to_json() for verdict in verdicts]
    sys.stdout.flush()
    print(msgspec.json.encode(found).decode(), flush=True)
