"""Entry of a PS process."""

from __future__ import annotations

from elastichost.ps.loop import ServerLoop
from elastichost.wire.entry import run_loop

__all__ = ["main"]


def main(arguments_json: bytes) -> int:
    """Returns the exit code of the process."""
    return run_loop(arguments_json, "ps", ServerLoop)
