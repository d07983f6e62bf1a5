"""A training step that has only the matrix products of its linear layers: the limit of what any system can reach.

A layer with weights W [outputs, inputs], inputs x [B, inputs] and a gradient g [B, outputs] of its outputs has three:

    forward              x W^T      [B, outputs]
    gradient of inputs   g W        [B, inputs], except in the first layer, whose inputs are data
    gradient of weights  g^T x      [outputs, inputs]

Every core computes such steps at the same time, each with torch on one thread. In bfloat16, g^T is given as a matrix of
its own, because oneDNN multiplies a transposed view at less than half the speed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import torch

from benchmarks.data_plane.figures import MeasuredWindow, Window
from benchmarks.workload.job_file import Precision
from benchmarks.workload.shape import Shape

__all__ = ["products_arm"]


def products_arm(name: str, shape: Shape, precision: Precision, window_s: float) -> Callable[[int], MeasuredWindow]:
    """The function that measures the window of a round: samples whose products all cores computed."""
    steps: list[_Step] = []

    def measure(number: int) -> MeasuredWindow:
        torch.set_num_threads(1)
        while len(steps) < len(os.sched_getaffinity(0)):
            steps.append(_Step(shape, torch.bfloat16 if precision == "bfloat16" else torch.float32))
            steps[-1]()
        counts = [0] * len(steps)
        began_s = time.monotonic()
        threads = [
            threading.Thread(target=_repeat, args=(step, counts, place, began_s + window_s))
            for place, step in enumerate(steps)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began_s
        return MeasuredWindow(Window(name, number, sum(counts) * shape.batch_size, seconds, {}, 0.0), 0)

    return measure


def _repeat(step: _Step, counts: list[int], place: int, deadline_s: float) -> None:
    while time.monotonic() < deadline_s:
        step()
        counts[place] += 1


class _Step:
    """The products of one step, with operands of its own."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        self._layers = []
        for inputs, outputs, has_input_gradient in shape.layers():
            x, weights, g = (
                torch.randn(size).to(dtype)
                for size in ((shape.batch_size, inputs), (outputs, inputs), (shape.batch_size, outputs))
            )
            g_transposed = g.t().contiguous() if dtype == torch.bfloat16 else g.t()
            self._layers.append((x, weights, g, g_transposed, has_input_gradient))

    def __call__(self) -> None:
        for x, weights, _, _, _ in self._layers:
            torch.mm(x, weights.t())
        for x, weights, g, g_transposed, has_input_gradient in reversed(self._layers):
            if has_input_gradient:
                torch.mm(g, weights)
            torch.mm(g_transposed, x)
