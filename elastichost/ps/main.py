"""Entry of a PS process."""

from __future__ import annotations

from elastichost.ps.loop import ServerLoop
from elastichost.wire.entry import run_loop

__all__ = ["main"]


def main(arguments_json: bytes) -> int:
    """Runs a PS process; returns its exit code."""
    return run_loop(arguments_json, "ps", ServerLoop)
