"""Makes Triton interpret kernels on the CPU in the process of the tests, where there is no GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

__all__ = ["interpret_kernels"]


def interpret_kernels() -> None:
    """Call before anything imports Triton, as torchrec does. The environment stays as it is: a worker that a test
    starts with TRITON_INTERPRET=1 would train in the interpreter."""
    if importlib.util.find_spec("triton") is None or Path("/dev/nvidiactl").exists():
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import triton
    triton.knobs.propagate_env = False
    triton.knobs.runtime.interpret = True
