"""Kernels run on the GPU where there is one, and in Triton's interpreter on the CPU elsewhere."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The device on which kernels run."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
