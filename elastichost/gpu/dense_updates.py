"""The dense optimizers on a GPU: one pass over parameters, state and gradients, which also writes the bfloat16 copy
with which layers compute.

The formulas are those of `elastichost.arena.dense.kernels`. The number of the step lies on the device: a refused batch
does not advance it.
"""

from __future__ import annotations

import torch

from elastichost.arena.dense.store import DenseOptimizerSpec
from elastichost.errors import ConfigError
from elastichost.gpu.compiled import ceil_divide, kernel, tl

__all__ = ["DenseUpdate", "copy_to_address", "flag_non_finite", "report"]

_BLOCK = 1024
_SGD, _ADAGRAD, _ADAM = 0, 1, 2
_CODES = {"sgd": _SGD, "adagrad": _ADAGRAD, "adam": _ADAM, "adamw": _ADAM}


@kernel
def _flag_non_finite(values, flag, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + at, mask=at < count, other=0.0).to(tl.float32)
    bad = tl.where(value - value == 0.0, 0, 1)  # NaN for NaN and for infinite values
    if tl.max(bad, axis=0) > 0:
        tl.store(flag, 1)


@kernel
def _advance(step, factors, is_refused, beta1, beta2, IS_ADAM: tl.constexpr):  # type: ignore[no-untyped-def]
    """Counts the step, and writes 1 / (1 - b1^t) and sqrt(1 - b2^t), computed in float64, to factors float32 [2]."""
    if tl.load(is_refused) == 0:
        number = tl.load(step) + 1
        tl.store(step, number)
        if IS_ADAM:
            power = number.to(tl.float64)
            first = 1.0 - tl.exp(power * tl.load(beta1))
            second = 1.0 - tl.exp(power * tl.load(beta2))
            tl.store(factors, (1.0 / first).to(tl.float32))
            tl.store(factors + 1, tl.sqrt(second).to(tl.float32))


@kernel
def _update(  # type: ignore[no-untyped-def]
    parameters,
    state,
    gradients,
    low,
    factors,
    rate_scale,
    is_refused,
    count,
    rate,
    first_decay,
    second_decay,
    eps,
    weight_decay,
    IS_DECOUPLED: tl.constexpr,
    OPTIMIZER: tl.constexpr,
    HAS_LOW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if tl.load(is_refused) == 0:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        value = tl.load(parameters + at, mask=inside, other=0.0)
        slope = tl.load(gradients + at, mask=inside, other=0.0)
        step = rate * tl.load(rate_scale)
        if IS_DECOUPLED:
            value -= step * weight_decay * value
        else:
            slope += weight_decay * value
        if OPTIMIZER == 0:
            if first_decay != 0.0:
                slope += first_decay * tl.load(state + at, mask=inside, other=0.0)
                tl.store(state + at, slope, mask=inside)
            value -= step * slope
        elif OPTIMIZER == 1:
            total = tl.load(state + at, mask=inside, other=0.0) + slope * slope
            tl.store(state + at, total, mask=inside)
            value -= step * slope / (tl.sqrt_rn(total) + eps)
        else:
            first = first_decay * tl.load(state + at, mask=inside, other=0.0) + (1.0 - first_decay) * slope
            second = tl.load(state + count + at, mask=inside, other=0.0)
            second = second_decay * second + (1.0 - second_decay) * slope * slope
            tl.store(state + at, first, mask=inside)
            tl.store(state + count + at, second, mask=inside)
            root = tl.sqrt_rn(second) / tl.load(factors + 1) + eps
            value -= step * tl.load(factors) * first / root
        tl.store(parameters + at, value, mask=inside)
        if HAS_LOW:
            tl.store(low + at, value.to(tl.bfloat16), mask=inside)


@kernel
def _copy_to_address(source, address, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + at, mask=at < count, other=0.0)
    tl.store(address.to(tl.pointer_type(tl.float32)) + at, value, mask=at < count)


@kernel
def _report(loss, is_refused, address):  # type: ignore[no-untyped-def]
    out = address.to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(loss))
    tl.store(out + 1, tl.load(is_refused).to(tl.float32))


def report(loss: torch.Tensor, is_refused: torch.Tensor, address: int) -> None:
    """Writes a loss float32 [1] and a flag int32 [1] as two floats to memory of the host that the GPU can write."""
    _report[(1,)](loss, is_refused, address)


def copy_to_address(source: torch.Tensor, address: int) -> None:
    """Copies a contiguous float32 tensor to an address that the GPU can write, such as a registered mailbox."""
    count = source.numel()
    _copy_to_address[(ceil_divide(count, _BLOCK),)](source, address, count, BLOCK=_BLOCK)


def flag_non_finite(values: torch.Tensor, flag: torch.Tensor) -> None:
    """Writes 1 to flag int32 [1] if an element of the contiguous `values` is NaN or infinite."""
    count = values.numel()
    _flag_non_finite[(ceil_divide(count, 4 * _BLOCK),)](values, flag, count, BLOCK=4 * _BLOCK)


class DenseUpdate:
    """The optimizer of one flat dense vector on one device.

    parameters, gradients float32 [n]. low: bfloat16 [n], or None. state: float32 [2 n]. Raises ConfigError for a limit
    of the gradient's norm: it would need one more pass. The PS, which update the dense vector of a run also where
    workers have GPUs, clip it.
    """

    def __init__(
        self,
        spec: DenseOptimizerSpec,
        parameters: torch.Tensor,
        gradients: torch.Tensor,
        low: torch.Tensor | None,
        rate_scale: torch.Tensor,
        is_refused: torch.Tensor,
    ) -> None:
        if spec.clip_norm:
            raise ConfigError(
                f"train.clip_norm = {spec.clip_norm}: the dense optimizer on a GPU does not clip gradients",
                hint="set it to 0, or let the parameter servers update the dense part",
            )
        device, count = parameters.device, parameters.numel()
        self.state = torch.zeros(2 * count, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self._spec, self._low = spec, low
        self._vectors = (parameters, self.state, gradients)
        self._rate_scale, self._is_refused = rate_scale, is_refused
        self._factors = torch.ones(2, device=device)
        betas = torch.tensor([max(spec.beta1, 1e-300), max(spec.beta2, 1e-300)], dtype=torch.float64).log().to(device)
        self._logs = betas[:1].clone(), betas[1:].clone()

    def apply(self) -> None:
        """Makes one step with the gradients, unless the batch is refused."""
        parameters, state, gradients = self._vectors
        spec, count = self._spec, parameters.numel()
        is_adam = spec.name in ("adam", "adamw")
        _advance[(1,)](self.step, self._factors, self._is_refused, *self._logs, IS_ADAM=is_adam)
        first_decay = spec.beta1 if is_adam else spec.momentum
        _update[(ceil_divide(count, _BLOCK),)](
            parameters,
            state,
            gradients,
            parameters if self._low is None else self._low,
            self._factors,
            self._rate_scale,
            self._is_refused,
            count,
            spec.learning_rate,
            first_decay,
            spec.beta2,
            spec.eps,
            spec.weight_decay,
            IS_DECOUPLED=spec.name == "adamw",
            OPTIMIZER=_CODES[spec.name],
            HAS_LOW=self._low is not None,
            BLOCK=_BLOCK,
        )
