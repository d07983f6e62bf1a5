"""A writer of shared memory, stopped before each of its lines: what a reader in another process could see then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec

__all__ = ["look_before_each_line"]

P = ParamSpec("P")


def look_before_each_line(
    look: Callable[[], object], writer: Callable[P, object], *args: P.args, **named: P.kwargs
) -> None:
    """Calls the writer, and `look` before each line of the writer itself and after the last one. What `look` raises
    comes out of here."""
    code = getattr(writer, "__func__", writer).__code__

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line":
            look()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        writer(*args, **named)
    finally:
        sys.settrace(before)
    look()
