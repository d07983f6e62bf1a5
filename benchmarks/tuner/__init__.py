"""How well the tuner predicts, decides and shares out: on recorded real runs, in simulation, beside its rivals."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["main"]

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # decisions are timed: before numpy is imported


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m elastichost bench tuner`."""
    from benchmarks.tuner.suite import main as suite

    return suite(arguments)
