"""One training step on a GPU, captured into a CUDA graph.

A step has some sixty small kernels, and launching them one by one takes longer than running them. So after a few steps
that run eagerly, each half of the inputs gets a graph of the whole step: lookup, forward pass, loss, backward pass with
the update of rows, and what the caller adds (the dense optimizer, or copying the gradients to a mailbox). While one
half computes, the inputs of the next batch are copied into the other.

A model whose forward pass reads a value on the host (`.item()`, `nonzero`, a mask as an index) cannot be captured. Its
steps run eagerly, one after another, as the first ones.

A batch whose loss or gradients are not finite changes nothing: a flag on the device, `is_refused`, masks every update.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
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
    write their gradients. losses: float32 [halves], the loss of the last batch of each half. tell: is told once, in a
    sentence, when a graph cannot be captured; None: `run` raises what the capture raised. cannot_be_captured: whether
    a capture has failed.
    """

    def __init__(
        self,
        loss: Callable[[StepInputs], torch.Tensor],
        finish: Callable[[int, torch.Tensor], None],
        gradients: torch.Tensor,
        backward_pass: Callable[[], AbstractContextManager[None]],
        switches: StepSwitches,
        halves: tuple[StepInputs, ...],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._loss, self._finish, self._gradients = loss, finish, gradients
        self._backward_pass = backward_pass
        self.switches, self.halves = switches, halves
        self.losses = torch.zeros(len(halves), device=gradients.device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._eager_steps = [0] * len(halves)
        self._tell = tell
        self._pool: torch.cuda._POOL_HANDLE | None = None
        self._failed: list[torch.cuda.CUDAGraph] = []  # never freed: torch's allocators may refer to them
        self.cannot_be_captured = False

    def run(self, half: int) -> None:
        """One step with the inputs of this half, on the current stream. The first steps run eagerly; then the graph is
        captured, and replayed from then on. When the capture fails, this step and all later ones without a graph run
        eagerly. Raises what the model raises."""
        graph = self._graphs.get(half)
        if graph is None and self._is_due(half):
            graph = self._try_capture(half)
        if graph is not None:
            graph.replay()
        else:
            self._eager_steps[half] += 1
            self.body(half)

    def _is_due(self, half: int) -> bool:
        """Whether the graph of this half is to be captured now."""
        is_warm = self._eager_steps[half] >= WARM_UP_STEPS
        return is_warm and self._gradients.device.type != "cpu" and not self.cannot_be_captured

    def _try_capture(self, half: int) -> torch.cuda.CUDAGraph | None:
        """The graph of a half; None: it cannot be captured, and nothing was computed."""
        try:
            return self.capture(half)
        except RuntimeError as error:  # an error of the model itself comes again in the eager step
            if self._tell is None:
                raise
            cause = error
            while isinstance(cause.__context__, RuntimeError):  # the first one says what the forward pass did
                cause = cause.__context__
            reason = (str(cause).splitlines() or [type(cause).__name__])[0]
        self.cannot_be_captured = True
        advice = "let forward() read no value of the GPU on the host: no .item(), no nonzero, no mask as an index"
        if isinstance(cause, torch.OutOfMemoryError):
            advice = "make train.batch_size smaller, or give the job more memory of the GPU"
        self._tell(
            f"steps run without a CUDA graph, which is slower: the model's step cannot be captured ({reason}); {advice}"
        )
        return None

    def capture(self, half: int) -> torch.cuda.CUDAGraph:
        """Captures the graph of a half. Nothing is computed. Raises RuntimeError when the step cannot be captured; the
        current stream and the pool of memory are then as before."""
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            # the outer context: torch.cuda.graph leaves its own stream the current one when a capture fails.
            # thread_local: the thread that stages batches goes on meanwhile
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                self.body(half)
        except RuntimeError:
            self._failed.append(graph)
            self._clean_up(graph, self._pool)
            raise
        self._graphs[half] = graph
        return graph

    def _clean_up(self, graph: torch.cuda.CUDAGraph, pool: tuple[int, int]) -> None:
        """Takes back what a failed capture has begun: its state in the generator of random numbers, and in torch's
        allocator, which would keep the memory of the half-done step for good and put off freeing other memory."""
        graph.reset()
        device = self._gradients.device.index
        with suppress(RuntimeError):  # the capture has ended it
            torch._C._cuda_endAllocateToPool(device, pool)
            torch._C._cuda_releasePool(device, pool)

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
