"""A kernel in Triton, for P7. The module imports Triton, which only machines with a GPU have."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["add_one"]

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit
def add_one(pointer, count):  # type: ignore[no-untyped-def]  # Triton compiles the source and knows no annotations
    """Adds one to each of `count` numbers."""
    offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    inside = offsets < count
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=inside) + 1.0, mask=inside)
