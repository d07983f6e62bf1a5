"""Stops a writer or reader of shared memory before each of its lines, where another process could read or write."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

__all__ = ["look_before_each_line"]

P = ParamSpec("P")
R = TypeVar("R")


def look_before_each_line(look: Callable[[], object], function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Calls the function, and calls `look` before each of its lines and after the last one. Returns the function's
    result. An exception of `look` is raised here."""
    code = getattr(function, "__func__", function).__code__

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line":
            look()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        answer = function(*args, **named)
    finally:
        sys.settrace(before)
    look()
    return answer
