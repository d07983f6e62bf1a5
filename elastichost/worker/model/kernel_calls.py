"""How modules of a model call kernels of another compiler than torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch

__all__ = ["flat_array", "untraced"]

P = ParamSpec("P")
R = TypeVar("R")


def flat_array(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous CPU tensor as a flat array: float32, or uint16 for bfloat16."""
    flat = tensor.detach().view(-1)
    return flat.view(torch.int16).numpy().view(np.uint16) if flat.dtype == torch.bfloat16 else flat.numpy()


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Excludes a function from torch.compile, whose tracer cannot trace kernels of another compiler. The graph breaks
    here."""
    return cast(Callable[P, R], torch.compiler.disable(function))  # type: ignore[no-untyped-call]
