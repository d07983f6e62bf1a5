"""One training step on a GPU, captured into a CUDA graph.

A step has some sixty small kernels, and launching them one by one takes longer than running them. So after a few steps
that run eagerly, each half of the inputs gets a graph of the whole step: lookup, forward pass, loss, backward pass with
the update of rows, and what the caller adds (the dense optimizer, or copying the gradients to a mailbox). While one
half computes, the inputs of the next batch are copied into the other.

A batch whose loss or gradients are not finite changes nothing: a flag on the device, `is_refused`, masks every update.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from elastichost.gpu.dense_updates import flag_non_finite
from elastichost.gpu.step_inputs import StepInputs

__all__ = ["WARM_UP_STEPS", "DeviceStep", "StepSwitches"]

WARM_UP_STEPS = 3  # eager steps on each half before its graph is captured


@dataclass(frozen=True, slots=True)
class StepSwitches:
    """Words on the device that the kernels of a step read. rate_scale float32 [1]; is_refused int32 [1]."""

    rate_scale: torch.Tensor
    is_refused: torch.Tensor

    @classmethod
    def allocate(cls, device: torch.device) -> StepSwitches:
        return cls(torch.ones(1, device=device), torch.zeros(1, dtype=torch.int32, device=device))


class DeviceStep:
    """Runs the step of one model with inputs of one shape.

    loss: the mean loss of these inputs, a scalar with its autograd graph. finish: what follows the backward pass, for
    this half and its loss, float32 [1] on the device; it reads `is_refused`. backward_pass: a context in which layers
    write their gradients. losses: float32 [halves], the loss of the last batch of each half.
    """

    def __init__(
        self,
        loss: Callable[[StepInputs], torch.Tensor],
        finish: Callable[[int, torch.Tensor], None],
        gradients: torch.Tensor,
        backward_pass: Callable[[], AbstractContextManager[None]],
        switches: StepSwitches,
        halves: tuple[StepInputs, ...],
    ) -> None:
        self._loss, self._finish, self._gradients = loss, finish, gradients
        self._backward_pass = backward_pass
        self.switches, self.halves = switches, halves
        self.losses = torch.zeros(len(halves), device=gradients.device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._eager_steps = [0] * len(halves)

    def run(self, half: int) -> None:
        """One step with the inputs of this half, on the current stream. The first steps run eagerly; then the graph is
        captured, and replayed from then on."""
        if (graph := self._graphs.get(half)) is not None:
            graph.replay()
        elif self._eager_steps[half] < WARM_UP_STEPS or self._gradients.device.type == "cpu":
            self._eager_steps[half] += 1
            self.body(half)
        else:
            self.capture(half).replay()

    def capture(self, half: int) -> torch.cuda.CUDAGraph:
        """Captures the graph of a half. Nothing is computed."""
        graph = torch.cuda.CUDAGraph()
        pool = next((known.pool() for known in self._graphs.values()), None)
        # thread_local: the thread that stages batches goes on meanwhile
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            self.body(half)
        self._graphs[half] = graph
        return graph

    def body(self, half: int) -> None:
        """The step, kernel by kernel."""
        switches = self.switches
        switches.is_refused.zero_()
        self._gradients.zero_()
        loss = self._loss(self.halves[half])
        self.losses[half].copy_(loss.detach())
        flag_non_finite(self.losses[half : half + 1], switches.is_refused)
        with self._backward_pass():
            loss.backward()
        flag_non_finite(self._gradients, switches.is_refused)
        self._finish(half, self.losses[half : half + 1])
