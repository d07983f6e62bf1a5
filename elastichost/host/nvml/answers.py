"""Tells a figure that a GPU does not have from a GPU that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["told"]


def told(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the answer of NVML to a call; None when this GPU does not support it (a GPU divided with MIG, a virtual
    GPU, WSL2), the driver is older than it, or this user may not ask. Other errors are raised, as NVMLError. nvml:
    pynvml, or its double."""
    try:
        return call(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NoPermission):
        return None
