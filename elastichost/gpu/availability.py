"""Whether this process can run the kernels for GPUs."""

from __future__ import annotations

import functools
import importlib.util
import os

__all__ = ["has_triton", "is_interpreted"]


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed. It comes with torch's CUDA build."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU in this process: TRITON_INTERPRET is 1."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"
